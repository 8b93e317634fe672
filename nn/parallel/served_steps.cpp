// What the thread of a parameter server does.
#include <chrono>
#include <exception>
#include <limits>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "nn/parallel/served_state.h"

namespace mytorch::nn::detail {

// Updates the values by the mean of these workers' gradients.
void ServedParameters::State::apply(const std::vector<int64_t>& workers) {
  for (const int64_t worker : workers) {
    window.get(places[static_cast<size_t>(worker)], mine->rank, mine->place(worker));
  }
  for (size_t i = 0; i < mine->numbers.size(); ++i) {
    const Tensor& value = values[mine->numbers[i]];
    const ScalarType dtype = value.dtype();
    const ScalarType wide = dtype == kFloat16 || dtype == kBFloat16 ? kFloat32 : dtype;
    Tensor sum;
    for (const int64_t worker : workers) {
      const Tensor& place = places[static_cast<size_t>(worker)];
      if (static_cast<const char*>(place.raw_data())[i] == 0) continue;
      const Tensor gradient = served::view_of(place, mine->gradients(), *mine, i).to(wide);
      if (!sum.defined()) {
        sum = workers.size() == 1 ? gradient : gradient.clone();
      } else {
        sum.add_(gradient);
      }
    }
    if (sum.defined() && workers.size() > 1) sum.div_(static_cast<double>(workers.size()));
    value.set_grad(sum.defined() ? sum.to(dtype) : Tensor());
  }
  step();
}

// Does what can be done now, and returns whether there was anything.
bool ServedParameters::State::serve_once() {
  const Tensor counters = mytorch::empty({mine->state()}, kUInt8);
  window.poll(counters, mine->rank, 0);
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<int64_t> ready;
  bool all = true, changed = false, finished = true;
  for (int64_t j = 0; j < mine->workers; ++j) {
    const int64_t applied = served::number_at(page, mine->applied(j));
    const bool left = served::number_at(counters, mine->left(j)) != 0;
    if (served::number_at(counters, mine->pushed(j)) > applied) {
      ready.push_back(j);
    } else if (!left) {
      all = false;
    } else if (served::number_at(page, mine->gone(j)) == 0) {
      served::set_number(page, mine->gone(j), 1);
      changed = true;
    }
    finished = finished && left;
  }
  const auto take = [&](const std::vector<int64_t>& workers) {
    apply(workers);
    for (const int64_t j : workers) {
      served::set_number(page, mine->applied(j), served::number_at(page, mine->applied(j)) + 1);
    }
  };
  if (finished && ready.empty()) {
    served::set_number(page, mine->state(), served::kFinished);
    changed = true;
  }
  if (synchronous()) {
    if (all && !ready.empty()) {
      take(ready);
      changed = true;
    }
  } else {
    for (const int64_t j : ready) {
      take({j});
      publish();
    }
    if (!ready.empty()) return true;
  }
  if (changed) publish();
  return changed;
}

void ServedParameters::State::serve() {
  const NoGradGuard no_grad;
  try {
    for (int64_t idle = 0;
         !stopping && served::number_at(page, mine->state()) == served::kServing;) {
      idle = serve_once() ? 0 : idle + 1;
      if (idle == 0) continue;
      if (idle < 100) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(idle < 1000 ? 50 : 500));
      }
    }
  } catch (const std::exception& error) {
    // The workers throw it. If the group has failed, they know.
    const std::lock_guard<std::mutex> lock(mutex);
    served::set_number(page, mine->state(), served::kFailed);
    served::set_message(page, *mine, error.what());
    try {
      publish();
    } catch (const Error&) {
    }
  }
}

// ---- beside the thread ----

void ServedParameters::between_steps(const std::function<void()>& work) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  work();
}

namespace {
std::string value_name(size_t number) { return absl::StrCat("parameter", number, ".value"); }
}  // namespace

void ServedParameters::add_values(TensorMap* state) const {
  if (state_->mine == nullptr) return;
  for (const size_t number : state_->mine->numbers) {
    (*state)[value_name(number)] = state_->values[number].detach().clone();
  }
}

TensorMap ServedParameters::check_values(const TensorMap& state) const {
  TensorMap rest = state;
  const std::vector<Tensor>& parameters = state_->shards.parameters();
  for (size_t number = 0; number < parameters.size(); ++number) {
    const auto found = state.find(value_name(number));
    const bool served_here = state_->mine != nullptr && state_->values[number].defined();
    if (found == state.end() && served_here) {
      fail(ErrorCode::kValue, "[ParameterServer] the state has no '", value_name(number),
           "', a parameter that rank ", state_->mine->rank, " serves");
    }
    if (found == state.end()) continue;
    if (found->second.sizes() != parameters[number].sizes()) {
      fail(ErrorCode::kShape, "[ParameterServer] '", found->first, "' has shape ",
           shape_str(found->second.sizes()), ", and the parameter ",
           shape_str(parameters[number].sizes()));
    }
    rest.erase(found->first);
  }
  return rest;
}

void ServedParameters::set_values(const TensorMap& state) {
  if (state_->mine == nullptr) return;
  const NoGradGuard no_grad;
  for (const size_t number : state_->mine->numbers) {
    state_->values[number].copy_(state.at(value_name(number)));
  }
  state_->publish();
}

}  // namespace mytorch::nn::detail
