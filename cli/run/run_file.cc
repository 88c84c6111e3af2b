// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "base/toml.h"
#include "cli/run/run_keys.h"
#include "cli/shell/printable.h"

namespace skerry::cli {
namespace {

constexpr std::array<const char*, 4> kShape{"width", "depth", "heads", "patch_size"};
constexpr std::size_t kRunFileBytes = 64 << 10;

std::string full_name(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : text(section, ".", key);
}

class Reader {
 public:
  explicit Reader(const std::string& shown_as) : shown_as_(shown_as) {}

  Result<RunFile> read(const toml::table& root) {
    static const pb::RunSpec kDefaults = defaults();
    spec_ = kDefaults;
    TRY(read_table("", root));
    TRY(check_complete());
    if (given("model", "width") && !given("model", "preset")) spec_.clear_preset();
    TRY(check_together(root));
    return RunFile{.spec = std::move(spec_),
                   .init_objective = init_objective_,
                   .names_shape = given("model", "preset") || given("model", "width")};
  }

 private:
  Error at(const toml::source_region& where, const std::string& message) const {
    return fail(ErrorCode::kInvalid,
                text(shown_as_, ":", where.begin.line, ":", where.begin.column, ": ", message));
  }
  Error missing(const std::string& message) const {
    return fail(ErrorCode::kInvalid, text(shown_as_, ": ", message));
  }

  static pb::RunSpec defaults() {
    const std::string shown_as = "defaults";
    Reader reader(shown_as);
    for (const RunKey& key : run_keys()) {
      if (key.standard.empty()) continue;
      const Result<toml::table> parsed = parse_toml(text("v = ", key.standard), key.name);
      SKERRY_CHECK(parsed.has_value() && reader.set(key, *parsed->get("v")).has_value(), key.name);
    }
    return reader.spec_;
  }

  Result<void> read_table(std::string_view section, const toml::table& table) {
    for (const auto& [key, node] : table) {
      const std::string_view name = key.str();
      if (const RunKey* known = find_run_key(section, name)) {
        TRY(set(*known, node));
        given_.emplace(section, name);
      } else if (section.empty() && is_run_section(name) && node.is_table()) {
        TRY(read_table(name, *node.as_table()));
      } else {
        return unknown(section, name, key.source(), node);
      }
    }
    return {};
  }

  Error unknown(std::string_view section, std::string_view name, const toml::source_region& where,
                const toml::node& node) const {
    if (section.empty() && is_run_section(name)) {
      return at(node.source(),
                text("'", name, "' is a section: expected [", name, "], found ", kind_of(node)));
    }
    std::vector<std::string_view> here;
    std::string elsewhere;
    for (const RunKey& key : run_keys()) {
      if (key.section == section) here.push_back(key.name);
      if (section.empty() && !key.section.empty()) here.push_back(key.section);
      if (key.name == name) elsewhere = text("; it belongs in [", key.section, "]");
    }
    const std::string_view near = nearest_word(name, here);
    const std::string what = node.is_table() ? text("[", name, "]") : full_name(section, name);
    if (!elsewhere.empty()) return at(where, text("unknown key ", what, elsewhere));
    if (!near.empty())
      return at(where, text("unknown key ", printable(what), ": did you mean ", near, "?"));
    return at(where, text("unknown key ", printable(what),
                          ": `skerry run create --example` prints every key"));
  }

  static std::string kind_of(const toml::node& node) {
    std::ostringstream out;
    out << node.type();
    return out.str();
  }

  static std::string shown(const toml::node& node) {
    if (node.is_table()) return "a section";
    if (node.is_array()) return "an array";
    std::ostringstream out;
    out << toml::default_formatter(node);
    return text(kind_of(node), " ", out.str());
  }

  Error wrong(const RunKey& key, const toml::node& node) const {
    return at(node.source(), text(full_name(key.section, key.name), ": expected ", key.expected,
                                  ", found ", shown(node)));
  }

  Result<void> set(const RunKey& key, const toml::node& node) {
    Value value;
    if (key.kind == Kind::kText && node.is_string()) {
      value = **node.as_string();
    } else if (key.kind == Kind::kWhole && node.is_integer()) {
      const std::int64_t whole = **node.as_integer();
      const auto rounded = static_cast<double>(whole);
      if (rounded < key.least || rounded > key.most) return wrong(key, node);
      value = whole;
    } else if (key.kind == Kind::kNumber && (node.is_floating_point() || node.is_integer())) {
      const double number =
          node.is_integer() ? static_cast<double>(**node.as_integer()) : **node.as_floating_point();
      if (!(number >= key.least && number <= key.most)) return wrong(key, node);
      value = number;
    } else if (key.kind == Kind::kSwitch && node.is_boolean()) {
      value = **node.as_boolean();
    } else {
      return wrong(key, node);
    }
    const Result<void> done = key.set(spec_, value);
    if (done.has_value() && key.name == "init_objective")
      init_objective_ = std::get<std::string>(value);
    if (done.has_value()) return {};
    if (done.error().message.empty()) return wrong(key, node);
    return at(node.source(), text(full_name(key.section, key.name), ": ", done.error().message));
  }

  bool given(std::string_view section, std::string_view name) const {
    return given_.contains({std::string(section), std::string(name)});
  }

  Result<void> check_complete() const {
    for (const auto& [section, name] :
         {std::pair{"", "name"}, {"", "dataset"}, {"train", "steps"}}) {
      if (given(section, name)) continue;
      const RunKey& key = *find_run_key(section, name);
      const std::string where = *section == '\0' ? "" : text(" in [", section, "]");
      return missing(text(name, " is missing", where, ": expected ", key.expected, ", for example ",
                          name, " = ", key.example));
    }
    return check_shape();
  }

  // A preset, the default one where nothing is said, or all four.
  Result<void> check_shape() const {
    const auto is_given = [this](const char* name) { return given("model", name); };
    if (given("model", "preset") || std::none_of(kShape.begin(), kShape.end(), is_given)) return {};
    const auto absent = std::find_if_not(kShape.begin(), kShape.end(), is_given);
    if (absent == kShape.end()) return {};
    return missing(text(
        "model.", *absent,
        " is missing: [model] needs a preset, such as \"S/2\", or all of width, depth, heads and "
        "patch_size"));
  }

  Result<void> check_together(const toml::table& root) const {
    const auto where = [&](const char* section, const char* name) {
      return root[section][name].node()->source();
    };
    if (given("model", "preset")) {
      for (const char* name : kShape) {
        if (!given("model", name)) continue;
        return at(where("model", name),
                  text("model.", name, " cannot stand beside model.preset: remove one of them"));
      }
    } else if (spec_.preset().empty() &&
               (spec_.width() % spec_.heads() != 0 || spec_.width() % 4 != 0)) {
      return at(where("model", "width"),
                text("model.width must be a multiple of 4 and of model.heads, found ",
                     spec_.width(), " with ", spec_.heads(), " heads"));
    }
    if (init_objective_ != "auto" && !given("model", "init")) {
      return at(where("model", "init_objective"),
                "model.init_objective is of the weights of model.init, which is missing");
    }
    if (given("checkpoint", "round_seconds") && given("checkpoint", "round_steps")) {
      return at(where("checkpoint", "round_steps"),
                "checkpoint.round_steps cannot stand beside checkpoint.round_seconds: remove one "
                "of them");
    }
    if (spec_.train().warmup_steps() > spec_.train().steps()) {
      return at(where("train", "warmup_steps"),
                text("train.warmup_steps: expected at most train.steps = ", spec_.train().steps(),
                     ", found ", spec_.train().warmup_steps()));
    }
    const bool cyclic = spec_.train().schedule() == pb::SCHEDULE_CYCLIC;
    if (cyclic && spec_.train().cycle_steps() == 0) {
      return at(where("train", "schedule"),
                "train.schedule: \"cyclic\" needs train.cycle_steps as well");
    }
    if (!cyclic && given("train", "cycle_steps")) {
      return at(where("train", "cycle_steps"),
                "train.cycle_steps is of schedule = \"cyclic\" only");
    }
    return {};
  }

  const std::string& shown_as_;
  pb::RunSpec spec_;
  std::string init_objective_ = "auto";  // read_run_file's caller needs it, no coordinator
  std::set<std::pair<std::string, std::string>> given_;
};

}  // namespace

Result<RunFile> parse_run_file(std::string_view toml_text, const std::string& shown_as) {
  ASSIGN_OR_RETURN(const toml::table table, parse_toml(toml_text, shown_as));
  return Reader(shown_as).read(table);
}

Result<RunFile> read_run_file(const std::string& path) {
  std::string bytes(kRunFileBytes + 1, '\0');
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file)
      return fail(ErrorCode::kNotFound,
                  text("cannot read the run file ", path, ": is the path right?"));
  }
  std::istream& in = path == "-" ? std::cin : file;
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in.bad()) return fail(ErrorCode::kIo, text("cannot read the run file ", path));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  if (bytes.size() > kRunFileBytes) {
    return fail(ErrorCode::kInvalid,
                text(path, ": a run file has at most ", human_bytes(kRunFileBytes)));
  }
  return parse_run_file(bytes, path == "-" ? "stdin" : path);
}

std::string example_run_file() {
  std::ostringstream out;
  out << "# A run: one expert for each partition of the dataset. Start it with: skerry run create "
         "-f FILE\n"
         "# Keys that stand behind '#' are optional and show what to write; the others show their "
         "default, "
         "or what suits most new runs.\n";
  std::string_view section;
  for (const RunKey& key : run_keys()) {
    if (key.section != section) out << "\n[" << (section = key.section) << "]\n";
    const bool optional = key.standard.empty() && key.example.empty();
    std::ostringstream line;
    line << (optional ? "# " : "") << key.name << " = ";
    if (optional) {
      line << (key.name == "round_steps" || key.name == "cycle_steps" ? "500"
               : key.name == "width"                                  ? "384"
               : key.name == "depth"                                  ? "12"
               : key.name == "heads"                                  ? "6"
               : key.name == "init"                                   ? "\"sigma/transformer\""
                                                                      : "2");
    } else {
      line << (key.example.empty() ? key.standard : key.example);
    }
    std::string words = line.str();
    words.resize(std::max<std::size_t>(words.size() + 2, 28), ' ');
    out << words << "# " << key.meaning << '\n';
  }
  return out.str();
}

}  // namespace skerry::cli
