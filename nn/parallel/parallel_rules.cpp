#include "nn/parallel/parallel_rules.h"

#include <span>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/types/errors.h"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn::parallel {
namespace {

using Components = std::span<const std::string>;

bool match(Components pattern, Components name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == "**") {
    for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
      if (match(pattern.subspan(1), name.subspan(skipped))) return true;
    }
    return false;
  }
  return !name.empty() && (pattern[0] == "*" || pattern[0] == name[0]) &&
         match(pattern.subspan(1), name.subspan(1));
}

// The model itself, "", has no component.
std::vector<std::string> components(const std::string& text) {
  if (text.empty()) return {};
  return absl::StrSplit(text, '.');
}

std::string some_names(const NamedList<Module*>& modules) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 1; i < modules.size() && i <= kShown; ++i) {
    absl::StrAppend(&text, i == 1 ? "'" : ", '", modules[i].first, "'");
  }
  if (modules.size() > kShown + 1) absl::StrAppend(&text, " and others");
  return text.empty() ? "none, for it has no parts" : text;
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  return match(components(pattern), components(name));
}

const char* name_of(ParallelStyle style) {
  constexpr const char* kNames[] = {"kColumn",     "kRow",      "kHeads",
                                    "kVocabulary", "kSequence", "kReplicate"};
  const auto number = static_cast<size_t>(style);
  if (number >= std::size(kNames)) {
    fail(ErrorCode::kValue, "[parallelize] there is no style ", number,
         ": give one of ParallelStyle");
  }
  return kNames[number];
}

ParallelPlan rules_for(const ParallelPlan& plan, bool sequences) {
  ParallelPlan rules;
  for (const ParallelRule& rule : plan) {
    if (sequences || rule.style != ParallelStyle::kSequence) rules.push_back(rule);
  }
  return rules;
}

std::vector<RuledModule> ruled_modules(Module& module, const ParallelPlan& plan, bool strict) {
  const NamedList<Module*> modules = module.named_modules();
  std::vector<bool> used(plan.size());
  std::vector<RuledModule> ruled;
  for (const auto& [name, part] : modules) {
    bool found = false;
    for (size_t i = 0; i < plan.size(); ++i) {
      name_of(plan[i].style);
      if (!matches(plan[i].pattern, name)) continue;
      used[i] = true;
      if (!found) ruled.push_back({name, part, plan[i].style});
      found = true;
    }
  }
  for (size_t i = 0; i < plan.size() && strict; ++i) {
    if (used[i] || plan[i].optional) continue;
    fail(ErrorCode::kValue, "[parallelize] the rule '", shown(plan[i].pattern),
         "' matches no module: the model has ", some_names(modules),
         ". `*` stands for one whole component of a name and `**` for any number; mark rules that "
         "may match nothing as optional");
  }
  return ruled;
}

}  // namespace mytorch::nn::parallel
