// SPDX-License-Identifier: Apache-2.0
// Shell completion, made from the parser's own tree so that it never lags
// behind it.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace skerry::cli {

std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);  // bash's, through zsh's own bridge
std::string fish_completion(const CLI::App& root);

}  // namespace skerry::cli
