// SPDX-License-Identifier: Apache-2.0
// Prints runs as JSON and as tables.
#pragma once

#include "cli/shell/output.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

Json run_json(const pb::RunInfo& run);       // without its experts
Json run_show_json(const pb::RunInfo& run);  // with them
Json spec_json(const pb::RunSpec& spec);     // in the words of run.toml

void print_runs(std::ostream& out, const std::vector<pb::RunInfo>& runs, std::int64_t now_unix_ms,
                bool colour);
void print_run(std::ostream& out, const pb::RunInfo& run, std::int64_t now_unix_ms, bool colour);
std::string eta_words(const pb::RunInfo& run);

}  // namespace skerry::cli
