// The files of assets/, embedded when the program is built (cmake/assets.cmake).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace snug::report::assets {

extern const std::string_view chart_css, lab_css, plan_css, run_css, timeline_css;
extern const std::string_view lab_js;
extern const std::string_view lab_js_hash;  // its SHA-256 in base64

}  // namespace snug::report::assets
