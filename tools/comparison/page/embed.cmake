# embed.cmake - writes the files of a page as one source file: constants of namespace moorage::core.
# cmake -DFOLDER=tools/comparison/page -DOUT=page_files.cpp -P embed.cmake
set(text "// What every page carries with it; written from tools/comparison/page.\n")
string(APPEND text "#include \"tools/comparison/page_files.h\"\n\nnamespace moorage::core {\n\n")
foreach(pair "uplot_script:uPlot.iife.min.js" "uplot_licence:uPlot.LICENSE" "uplot_style:uPlot.min.css" "page_script:page.js"
        "page_style:page.css")
  string(REPLACE ":" ";" pair "${pair}")
  list(GET pair 0 name)
  list(GET pair 1 file)
  file(READ "${FOLDER}/${file}" content)
  # In pieces: a compiler need not take a literal of any length.
  string(LENGTH "${content}" length)
  set(at 0)
  string(APPEND text "extern const char *const ${name};\nconst char *const ${name} =")
  while(at LESS length)
    string(SUBSTRING "${content}" ${at} 12000 piece)
    string(APPEND text "\nR\"page-file(${piece})page-file\"")
    math(EXPR at "${at} + 12000")
  endwhile()
  string(APPEND text ";\n\n")
endforeach()
string(APPEND text "}  // namespace moorage::core\n")
file(WRITE "${OUT}" "${text}")
