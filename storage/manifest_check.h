// SPDX-License-Identifier: Apache-2.0
// The rules of a manifest; private to this folder.
#pragma once

#include "storage/manifest.h"

namespace skerry::storage {

Result<void> check_manifest(const Manifest& manifest);

}  // namespace skerry::storage
