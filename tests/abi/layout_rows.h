/* layout_rows.h - prints the layout of the ABI as text, one row per struct, field, constant and id.
 *
 *   struct NAME SIZE, then per field "  OFFSET SIZE NAME"; constant NAME VALUE; id NAME TEXT
 *
 * Valid C11 and C++20, so that both languages are compared with sdk/abi/layout_2_1.txt. */
#ifndef LAYOUT_ROWS_H
#define LAYOUT_ROWS_H

#include <stdio.h>

#include "layout_headers.h"

/* Returns the number of structs whose fields leave a gap or do not reach the end. */
#define STRUCT(type)              \
    {                             \
        typedef type current;     \
        const char *name = #type; \
        size_t end = 0;           \
        fprintf(output, "struct %s %zu\n", name, sizeof(current));
#define FIELD(field)                                                                           \
    fprintf(output, "  %zu %zu %s\n", offsetof(current, field), sizeof(((current *)0)->field), \
            #field);                                                                           \
    if (offsetof(current, field) != end) {                                                     \
        fprintf(stderr, "%s: a gap before %s, or a field is not listed\n", name, #field);      \
        ++gaps;                                                                                \
    }                                                                                          \
    end = offsetof(current, field) + sizeof(((current *)0)->field);
#define END                                                                                    \
    if (end != sizeof(current) || sizeof(current) % 8 != 0) {                                  \
        fprintf(stderr, "%s: %zu bytes, the fields end at %zu\n", name, sizeof(current), end); \
        ++gaps;                                                                                \
    }                                                                                          \
    }
#define CONSTANT(name) fprintf(output, "constant %s %llu\n", #name, (unsigned long long)name);
#define ID(name) fprintf(output, "id %s %s\n", #name, name);

static inline int write_layout(FILE *output) {
    int gaps = 0;
#include "layout_list.h"
    return gaps;
}

#undef STRUCT
#undef FIELD
#undef END
#undef CONSTANT
#undef ID
#endif
