// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/perform.h"

namespace skerry::daemon {

void perform(const Effects& effects, Sink& sink) {
  for (const LogEntry& entry : effects.log) sink.log(entry);
  for (const Write& write : effects.writes) sink.write(write);
  for (const pb::ControlRequest& request : effects.sends) sink.send(request);
  for (const Hash& object : effects.cancels) sink.cancel(object);
  for (const FetchObject& order : effects.fetches) sink.fetch(order);
  for (const StopEngine& order : effects.stops) sink.stop(order);
  for (const PlanRound& order : effects.plans) sink.plan(order);
  for (const StoreSnapshot& order : effects.stores) sink.store(order);
  for (const StartEngine& order : effects.starts) sink.start(order);
  for (const DropObject& order : effects.drops) sink.drop(order);
  if (effects.collect_log) sink.collect_log(*effects.collect_log);
  if (effects.idle_exec) sink.idle_exec(*effects.idle_exec);
  if (effects.count_cards) sink.count_cards();
  sink.wake_at(effects.wake_at);
  if (effects.exit_code) sink.exit(*effects.exit_code);
}

}  // namespace skerry::daemon
