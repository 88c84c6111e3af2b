// SPDX-License-Identifier: Apache-2.0
#include "cli/view/event_view.h"

namespace skerry::cli {

// Steps and epochs are an expert's; 0 is a step like any other, but no epoch.
Json event_json(const pb::Event& event) {
  const bool of_expert = event.expert() >= 0;
  return {{"time", time_or_null(event.unix_ms())},
          {"kind", event.kind()},
          {"run", text_or_null(event.run())},
          {"expert", of_expert ? Json(event.expert()) : Json()},
          {"node", text_or_null(event.node())},
          {"reason", text_or_null(event.reason())},
          {"number", event.number()},
          {"step", of_expert ? Json(event.step()) : Json()},
          {"epoch", of_expert && event.epoch() > 0 ? Json(event.epoch()) : Json()}};
}

}  // namespace skerry::cli
