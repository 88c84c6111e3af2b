// SPDX-License-Identifier: Apache-2.0
// run.toml: what a person writes to start a run. Its keys are a contract: later
// versions may add keys whose defaults leave older files' runs unchanged; none
// is renamed; a key that is not known is an error. Failure rule: kInvalid with
// FILE:LINE:COLUMN, what was expected and what was found.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

// `shown_as` names the file in messages.
Result<pb::RunSpec> parse_run_file(std::string_view toml, const std::string& shown_as);
Result<pb::RunSpec> read_run_file(const std::string& path);  // "-": standard input

// A complete run file with every key, its default and its meaning;
// parse_run_file accepts it.
std::string example_run_file();

}  // namespace skerry::cli
