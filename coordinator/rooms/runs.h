// SPDX-License-Identifier: Apache-2.0
// The runs, their experts, and the names and ids they use.
//
// Invariant: a name belongs to one run. A run has as many experts as its record
// says, each at its index. The id of a deleted run is remembered until all
// records of it have expired.
#pragma once

#include <map>
#include <string>

#include "coordinator/core/context.h"
#include "coordinator/core/records.h"

namespace skerry::coordinator {

class Runs : Room {
 public:
  explicit Runs(Context& the_context) : Room(the_context) {}

  const Table<Run>& all() const { return runs_; }
  Table<Run>& all() { return runs_; }
  const std::map<std::string, RunId>& ids() const { return ids_; }  // by name
  const Run& at(const RunId& id) const { return runs_.at(id); }
  Run& at(const RunId& id) { return runs_.at(id); }
  const Run& of(const Expert& expert) const { return runs_.at(expert.id().run); }
  Run& of(const Expert& expert) { return runs_.at(expert.id().run); }
  const Run* find(const std::string& name_or_id) const;
  Run* find(const std::string& name_or_id) {
    return const_cast<Run*>(std::as_const(*this).find(name_or_id));
  }
  const Expert* find_expert(const RunId& run, std::uint32_t index) const;
  Expert* find_expert(const ExpertId& id) { return find_expert(id.run, id.index); }
  Expert* find_expert(const RunId& run, std::uint32_t index) {
    return const_cast<Expert*>(std::as_const(*this).find_expert(run, index));
  }
  Expert& at(const ExpertId& id) { return *find_expert(id.run, id.index); }
  // Calls visit(run, expert, checkpoint) for each checkpoint that is kept.
  template <class Visit>
  void visit_checkpoints(Visit visit) const {
    for (const auto& [id, run] : runs_) {
      for (const Expert& expert : run.experts) {
        for (const stored::Checkpoint& checkpoint : expert.record->checkpoints())
          visit(run, expert, checkpoint);
      }
    }
  }
  // Whether a commit of the object waits for a fetch or for its copies.
  bool is_pending(const Hash& manifest) const;

  Run& insert(Run run);
  // Erases the run and remembers its deletion.
  void erase(const RunId& id);
  // The run is no longer one that paused for its budget.
  void set_wanted(Run& run, stored::Wanted wanted, const std::string& reason);
  // It goes on, or is done if every expert is.
  void resume(Run& run);

  const Table<Plain<stored::DeletedRun>>& deleted() const { return deleted_; }
  void remember_deletion(const RunId& id, const std::string& name);
  void forget_deletions();

  // REQUIRES: runs are loaded before experts.
  // RETURNS: what is wrong; empty if nothing is.
  std::string load(stored::Run record);
  std::string load(stored::Expert record);
  std::string load(stored::DeletedRun record) {
    deleted_.load({Tracked(std::move(record))});
    return "";
  }

 private:
  Table<Run> runs_{context.journal, Kind::kRun};
  Table<Plain<stored::DeletedRun>> deleted_{context.journal, Kind::kDeleted};
  Changes<ExpertId> expert_changes_{context.journal, Kind::kExpert, [this](const ExpertId& id) {
                                      const Expert* expert = find_expert(id.run, id.index);
                                      return expert == nullptr ? nullptr : &*expert->record;
                                    }};
  std::map<std::string, RunId> ids_;
};

}  // namespace skerry::coordinator
