# packages.sh - sourced by quickstart and test: installs the distribution's packages that are missing, and
# configures a build.

# install_missing PACKAGE...: nothing is done, and no rights are needed, when all are there.
install_missing() {
    local missing=()
    local package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "these packages are missing, and neither root nor sudo is there to install them:" >&2
            echo "  apt-get install ${missing[*]}" >&2
            return 1
        fi
        sudo=(sudo)
    fi
    echo "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    "${sudo[@]}" apt-get update -qq &&
        "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# configure PRESET [OPTION...]: cmake's. A warning ends a build where changes are checked only: users have
# compilers that warn of more, sometimes wrongly.
configure() {
    local preset=$1 strict=OFF
    shift
    [ "${CI:-}" = true ] && strict=ON
    cmake --preset "$preset" "-DMOORAGE_WERROR=$strict" "$@"
}

# Names that Debian 12 and 13 share: what is named after a version there comes with one of these.
build_packages=(g++ cmake ninja-build libboost-dev libboost-filesystem-dev libtomlplusplus-dev
    libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev pkg-config libhwy-dev libpcre2-dev
    libutf8proc-dev liburing-dev libssl-dev zlib1g-dev)
unit_packages=(doctest-dev libucx-dev libglpk-dev gcc binutils python3 etcd-server)
test_packages=("${unit_packages[@]}" libbenchmark-dev valgrind mandoc zsh fish
    universal-ctags)
command -v rustc >/dev/null || test_packages+=(rustc)
