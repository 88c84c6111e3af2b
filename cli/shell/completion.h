// SPDX-License-Identifier: Apache-2.0 Generates shell completion scripts from
// the parser's tree, so that they always match the commands.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace skerry::cli {

std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);  // wraps bash's by zsh's bashcompinit
std::string fish_completion(const CLI::App& root);

}  // namespace skerry::cli
