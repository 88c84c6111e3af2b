// SPDX-License-Identifier: Apache-2.0
#include "gossip/router_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace skerry::gossip {
namespace {

bool holds(const pb::NodeRecord& node, std::string_view manifest) {
  const std::string_view wanted = manifest.substr(0, kHoldBytes);
  for (std::size_t i = 0; i + kHoldBytes <= node.holds().size(); i += kHoldBytes) {
    if (std::string_view(node.holds()).substr(i, kHoldBytes) == wanted) return true;
  }
  return false;
}

std::string short_name(const pb::ObjectRef& object) {
  return to_hex(object.manifest().substr(0, 6));
}

Part part(const Table& table, const pb::ObjectRef& object, Now now) {
  return {object, holders_of(table, object.manifest(), now)};
}

void miss_part(const std::optional<Part>& part, std::string_view what,
               std::vector<std::string>& missing) {
  if (!part) {
    missing.push_back(text(what, ": no record names it"));
  } else if (part->holders.empty()) {
    missing.push_back(text(what, ": no node says that it holds ", short_name(part->object)));
  }
}

struct Candidate {
  RecordPtr record;
  Duration age{};
  std::vector<Holder> holders;

  const pb::ExpertRecord& expert() const { return record->body.expert(); }
  // Greater: better.
  auto rank() const {
    return std::tuple(!holders.empty(), record->by_coordinator, expert().epoch(), expert().step());
  }
};

bool is_better(const Candidate& a, const Candidate& b) {
  if (a.rank() != b.rank()) return a.rank() > b.rank();
  return a.expert().checkpoint().manifest() < b.expert().checkpoint().manifest();
}

ExpertSource source_of(const Table& table, std::vector<Candidate> candidates, Now now) {
  std::ranges::sort(candidates, is_better);
  const Candidate& best = candidates.front();
  ExpertSource source{.index = best.expert().expert(),
                      .best = best.expert(),
                      .acknowledged = best.record->by_coordinator,
                      .author = best.record->key.author,
                      .age = best.age,
                      .holders = best.holders,
                      .statistics = {}};
  for (const Candidate& each : candidates) {
    if (!each.expert().has_statistics()) continue;
    source.statistics = part(table, each.expert().statistics(), now);
    break;
  }
  return source;
}

std::string unheld(const ExpertSource& source, std::string_view what) {
  return text(what, ": no node says that it holds its checkpoint ",
              short_name(source.best.checkpoint()), " of step ", source.best.step());
}

void miss_expert(const ExpertSource& source, std::vector<std::string>& missing) {
  if (source.holders.empty()) missing.push_back(unheld(source, text("expert ", source.index)));
  miss_part(source.statistics, text("statistics of partition ", source.index), missing);
}

std::map<ExpertIndex, std::vector<Candidate>> candidates_of(const Table& table, const RunId& run,
                                                            Now now) {
  std::map<ExpertIndex, std::vector<Candidate>> candidates;
  table.for_each(now, [&](const Entry& entry) {
    const Record& record = *entry.record;
    if (record.key.kind != Kind::kExpert || record.key.run != run || record.body.withdrawn())
      return;
    const std::string& manifest = record.body.expert().checkpoint().manifest();
    candidates[record.key.expert].push_back(
        {entry.record, Table::age(entry, now), holders_of(table, manifest, now)});
  });
  return candidates;
}

}  // namespace

std::string node_address(const Record& node) {
  constexpr std::string_view kScheme = "tcp://";
  const std::string& url = node.body.node().address();
  if (!url.starts_with(kScheme)) return {};
  return text(url.substr(kScheme.size()), "#", to_hex(certified(node).ed25519_key()));
}

std::vector<Holder> holders_of(const Table& table, std::string_view manifest, Now now) {
  std::vector<Holder> found;
  table.for_each(now, [&](const Entry& entry) {
    const pb::RecordBody& body = entry.record->body;
    if (!body.has_node() || body.withdrawn() || !holds(body.node(), manifest)) return;
    found.push_back({entry.record->key.author, body.node().address(), entry.record});
  });
  return found;
}

Result<RouterParts> router_parts(const Table& table, const RunId& run, Now now) {
  const Entry* about = table.find_run(run, now);
  if (about == nullptr || about->record->body.withdrawn()) {
    return fail(ErrorCode::kNotFound, text("no record tells of run ", run));
  }
  RouterParts parts{.run = run, .about = about->record->body.run()};
  parts.spec = part(table, parts.about.spec(), now);
  if (parts.about.has_router()) parts.router = part(table, parts.about.router(), now);
  miss_part(parts.spec, "specification", parts.missing);
  miss_part(parts.router, "router", parts.missing);

  std::map<ExpertIndex, std::vector<Candidate>> candidates = candidates_of(table, run, now);
  if (parts.about.trains_router()) {
    const ExpertIndex index = parts.about.experts() - 1;
    if (candidates.contains(index)) parts.learned_router = source_of(table, candidates[index], now);
    if (!parts.learned_router) {
      parts.learned_router_missing = "learned router: no record tells of a checkpoint";
    } else if (parts.learned_router->holders.empty()) {
      parts.learned_router_missing = unheld(*parts.learned_router, "learned router");
    }
  }
  for (ExpertIndex index = 0; index < parts.about.experts(); ++index) {
    if (std::ranges::count(parts.about.without(), index) != 0) continue;
    if (!candidates.contains(index)) {
      parts.missing.push_back(text("expert ", index, ": no record tells of a checkpoint"));
      continue;
    }
    parts.experts.push_back(source_of(table, candidates[index], now));
    miss_expert(parts.experts.back(), parts.missing);
  }
  return parts;
}

std::vector<ExpertHead> expert_heads(const Table& table, const RunId& run, Now now) {
  std::vector<ExpertHead> heads;
  table.for_each(now, [&](const Entry& entry) {
    const Record& record = *entry.record;
    if (record.key.kind != Kind::kExpert || record.key.run != run || record.body.withdrawn())
      return;
    heads.push_back({record.body.expert(), record.key.author, record.by_coordinator});
  });
  std::ranges::sort(heads, [](const ExpertHead& a, const ExpertHead& b) {
    const auto rank = [](const ExpertHead& head) {
      return std::tuple(head.acknowledged, head.record.epoch(), head.record.step());
    };
    if (a.record.expert() != b.record.expert()) return a.record.expert() < b.record.expert();
    if (rank(a) != rank(b)) return rank(a) > rank(b);
    return std::tie(a.record.checkpoint().manifest(), a.author) <
           std::tie(b.record.checkpoint().manifest(), b.author);
  });
  std::set<std::pair<ExpertIndex, std::string>> named;
  std::erase_if(heads, [&](const ExpertHead& head) {
    return !named.emplace(head.record.expert(), head.record.checkpoint().manifest()).second;
  });
  return heads;
}

std::optional<RunId> run_named(const Table& table, const std::string& words, Now now) {
  std::optional<RunId> found;
  for (const pb::RunRecord& run : known_runs(table, now)) {
    if (run.run() == words) return RunId(run.run());
    if (run.name() == words) found = RunId(run.run());
  }
  return found;
}

std::vector<pb::RunRecord> known_runs(const Table& table, Now now) {
  std::vector<pb::RunRecord> runs;
  table.for_each(now, [&](const Entry& entry) {
    const pb::RecordBody& body = entry.record->body;
    if (body.has_run() && !body.withdrawn()) runs.push_back(body.run());
  });
  return runs;
}

}  // namespace skerry::gossip
