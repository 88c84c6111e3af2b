// SPDX-License-Identifier: Apache-2.0 Parses run.toml, the file that describes
// a run. Its keys are stable: newer versions may add keys, with defaults that
// keep the meaning of older files, and never rename one. An unknown key is an
// error.
//
// ON FAILURE: kInvalid with FILE:LINE:COLUMN, what was expected and what was
// found.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

struct RunFile {
  pb::RunSpec spec;
  std::string init_objective = "auto";  // of spec.init
  bool names_shape = false;             // else [model] leaves it to the preset or to the init
};

// `shown_as` names the file in messages.
Result<RunFile> parse_run_file(std::string_view toml, const std::string& shown_as);
Result<RunFile> read_run_file(const std::string& path);  // "-": standard input

// RETURNS: a complete run file with every key, its default and its meaning.
// parse_run_file accepts it.
std::string example_run_file();

}  // namespace skerry::cli
