// Error handling for the device functions of the contract, which have no context: errors go to the
// host.
#pragma once

#include <utility>

#include "mytorch/abi.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/kernel.h"

namespace mytorch::cuda {

// Runs f() and returns MT_OK. For an exception, passes its message to the host and returns its
// status.
template <class F>
int answer(F&& f) {
  return sdk::status_of(std::forward<F>(f), [](int status, const char* message) {
    const mt_host* host = sdk::host();
    if (host != nullptr && host->set_error != nullptr) host->set_error(status, message);
  });
}
// Like answer(), for functions that return an object; NULL if f() throws.
template <class F>
void* object_or_null(F&& f) {
  void* object = nullptr;
  answer([&] { object = f(); });
  return object;
}

}  // namespace mytorch::cuda
