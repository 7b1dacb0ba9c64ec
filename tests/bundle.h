// bundle.h - the headers that most test files include, compiled once for all programs of several
// files (CMakeLists.txt). Each file still includes its own headers.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
