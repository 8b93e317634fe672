// The functions of a device have no context: their errors go to the host.
#pragma once

#include <utility>

#include "mytorch/abi.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/kernel.h"

namespace mytorch::cuda {

// Runs f() and returns MT_OK; an exception becomes its status, its message goes to the host.
template <class F>
int answer(F&& f) {
  return sdk::status_of(std::forward<F>(f), [](int status, const char* message) {
    const mt_host* host = sdk::host();
    if (host != nullptr && host->set_error != nullptr) host->set_error(status, message);
  });
}
// The same for functions that return an object, or NULL.
template <class F>
void* object_or_null(F&& f) {
  void* object = nullptr;
  answer([&] { object = f(); });
  return object;
}

}  // namespace mytorch::cuda
