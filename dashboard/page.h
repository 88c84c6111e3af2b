// SPDX-License-Identifier: Apache-2.0
// The files of dashboard/page/, as strings of the program.
#pragma once

#include <span>
#include <string_view>

namespace skerry::dashboard {

struct PageFile {
  std::string_view path;  // of the URL
  std::string_view type;
  std::string_view content;
};

std::span<const PageFile> page_files();

}  // namespace skerry::dashboard
