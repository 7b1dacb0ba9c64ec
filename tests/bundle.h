// bundle.h - what most test files read, compiled once for all programs of several (CMakeLists.txt).
// A file includes what it needs itself.
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
