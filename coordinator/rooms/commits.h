// SPDX-License-Identifier: Apache-2.0
// Commits: the only way that training becomes durable.
//
// Invariant: a commit is accepted once. It must extend the current head, under
// the current epoch and the holder's current attempt. Its object must be whole
// here and durable in min(wanted, available) other places. Any other commit is
// refused or pends: at most one for each expert, until its object and copies
// arrive.
#pragma once

#include <optional>
#include <string>

#include "coordinator/rooms/adoptions.h"
#include "coordinator/rooms/history.h"
#include "coordinator/rooms/speeds.h"

namespace skerry::coordinator {

class Commits : Room {
 public:
  // LIFETIME: the other rooms outlive this one.
  Commits(Context& the_context, EventLog& events, Runs& runs, const Roster& roster,
          Objects& objects, const Datasets& datasets, Copies& copies, const Adoptions& adoptions,
          Speeds& speeds, History& history)
      : Room(the_context),
        events_(events),
        runs_(runs),
        roster_(roster),
        objects_(objects),
        datasets_(datasets),
        copies_(copies),
        adoptions_(adoptions),
        speeds_(speeds),
        history_(history) {}

  // Replies now, or once the missing object and copies have arrived.
  void commit(const Node& node, const Received& event);
  // Decides a pending commit again: any of its conditions may have changed.
  void try_again(Expert& expert);
  void object_failed(const ObjectFailed& event);
  void drop_pending(Expert& expert);
  // Whether a commit waits for copies or for room on this disk, which its node
  // cannot help.
  bool is_held_up(const Expert& expert) const;
  // Whether durable state, a pending commit or an adoption needs the object.
  bool is_wanted(const Hash& manifest) const;
  // Logs an event once for each node and epoch: a fenced node retries often.
  void tell_fenced(Expert& expert, const Node& node, Epoch epoch, Step step,
                   const std::string& reason);

 private:
  // The caller no longer needs the object. Cancels its fetch unless another
  // part of the state waits for it.
  void cancel_fetch(const Hash& manifest);
  std::optional<pb::CommitReply> decide(Expert& expert, const Node& node, const pb::Commit& commit);
  std::optional<Error> fetch(Expert& expert, const Node& node, const Received& event);
  void accept(Expert& expert, const Node& node, const pb::Commit& commit,
              const StoredObject& object);
  void measure(const Run& run, const Expert& expert, const Node& node, const pb::Commit& commit);
  void set_pending(Expert& expert, std::optional<PendingCommit> pending);
  void refuse(Expert& expert, const Node& node, const std::string& reason);
  void answer(const PendingCommit& pending, const pb::CommitReply& verdict);

  EventLog& events_;
  Runs& runs_;
  const Roster& roster_;
  Objects& objects_;
  const Datasets& datasets_;
  Copies& copies_;
  const Adoptions& adoptions_;
  Speeds& speeds_;
  History& history_;
};

}  // namespace skerry::coordinator
