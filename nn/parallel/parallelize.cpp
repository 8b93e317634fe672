#include "mytorch/nn/parallel/parallelize.h"

#include <map>
#include <memory>
#include <set>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/head_parallel.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/transformer.h"
#include "nn/modules/names.h"
#include "nn/parallel/parallel_rules.h"
#include "nn/parallel/split_styles.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using parallel::Cut;
using parallel::RankSplit;
using parallel::RuledModule;

// What is to be done with a model. It is known, and checked, before anything is changed.
class Parallelization {
 public:
  Parallelization(Module& module, const ParallelPlan& plan, const Group& group,
                  const ParallelizeArgs& options)
      : module_(module), ranks_{group, options.sequence_dim}, group_(group) {
    const ParallelPlan rules = parallel::rules_for(plan, options.sequence_dim.has_value());
    for (const RuledModule& ruled : parallel::ruled_modules(module, rules, options.strict)) {
      add(ruled);
    }
    check_shared();
  }

  std::string text() const;
  void apply();
  void sync() const;

 private:
  struct Assigned {
    Module* module;
    std::shared_ptr<RankSplit> split;
  };
  struct Line {  // of text()
    std::string module, parameters;
  };

  void add(const RuledModule& ruled);
  void add_column(const RuledModule& ruled);
  void add_row(const RuledModule& ruled, Linear& linear);
  void add_heads(const RuledModule& ruled);
  void add_attention(const RuledModule& ruled, MultiheadAttention& attention);
  void add_vocabulary(const RuledModule& ruled);
  void add_sequence(const RuledModule& ruled);
  void check_shared() const;

  // Notes that a rule splits a module. Throws if it cannot, or another rule does.
  void claim(const RuledModule& ruled);
  // Throws that the rule's style is not for the module; `use` says what it is for.
  [[noreturn]] void misfit(const RuledModule& ruled, const char* use) const;
  // Throws unless the ranks divide `count` of something.
  void check_divides(const RuledModule& ruled, const std::string& what, int64_t count) const;
  // Returns the module as a layer whose forward is that of its class, or null.
  template <class M>
  M* exact(Module* module) const {
    return typeid(*module) == typeid(M) ? static_cast<M*>(module) : nullptr;
  }
  Linear* linear_of(Module* module) const {
    Linear* linear = exact<Linear>(module);
    return linear != nullptr ? linear : exact<LazyLinear>(module);
  }
  // Notes how a parameter is divided, by its name from the split module on. Undefined ones are
  // none.
  void divide(const RuledModule& ruled, RankSplit& split, const std::string& name, Tensor& member,
              const Cut& cut);
  std::string title(const RuledModule& ruled) const {
    return absl::StrCat("'", ruled.name, "' (", class_name(*ruled.module), ")");
  }

  Module& module_;
  const parallel::Ranks ranks_;
  const Group group_;
  std::set<const Module*> claimed_;
  std::vector<Assigned> assigned_;
  std::map<Tensor*, Cut> cuts_;  // of the members that hold parameters
  std::vector<Line> lines_;
};

void Parallelization::misfit(const RuledModule& ruled, const char* use) const {
  fail(ErrorCode::kValue, "[parallelize] ", title(ruled), " cannot be split by ",
       parallel::name_of(ruled.style), ", which is for ", use);
}

void Parallelization::check_divides(const RuledModule& ruled, const std::string& what,
                                    int64_t count) const {
  if (count % group_.size() == 0) return;
  fail(ErrorCode::kValue, "[parallelize] ", title(ruled), " has ", count, " ", what, ", and the ",
       group_.size(), " ranks do not divide them");
}

void Parallelization::divide(const RuledModule& ruled, RankSplit& split, const std::string& name,
                             Tensor& member, const Cut& cut) {
  if (!member.defined()) return;
  if (member.dim() <= cut.dim || member.size(cut.dim) != cut.size) {
    fail(ErrorCode::kValue, "[parallelize] ", title(ruled), " has a parameter '", name,
         "' of shape ", shape_str(member.sizes()), ", and dimension ", cut.dim, " of it should be ",
         cut.size, ": parallelize the model before anything else splits or replaces it");
  }
  cuts_.insert({&member, cut});
  split.cuts.emplace_back(name, cut);
  std::vector<int64_t> sizes = member.sizes().vec();
  sizes[static_cast<size_t>(cut.dim)] = cut.rows(group_.size());
  std::string& text = lines_.back().parameters;
  absl::StrAppend(&text, text.empty() ? ": " : ", ", name, " ", shape_str(member.sizes()), " -> ",
                  shape_str(sizes));
}

void Parallelization::claim(const RuledModule& ruled) {
  if (!claimed_.insert(ruled.module).second) {
    fail(ErrorCode::kValue, "[parallelize] ", title(ruled),
         " has a rule of its own and is split with the module that has its heads: leave one out");
  }
  if (split_of(*ruled.module) != nullptr) {
    fail(ErrorCode::kValue, "[parallelize] ", title(ruled),
         " is split already: parallelize a model once");
  }
  if (detail::ParameterAccess::is_parametrized(*ruled.module)) {
    fail(ErrorCode::kUnsupported, "[parallelize] ", title(ruled),
         " is parametrized, and its parameters cannot be split: remove the parametrization");
  }
  if (detail::ParameterAccess::shares_hooks(*ruled.module)) {
    fail(ErrorCode::kValue, "[parallelize] ", title(ruled),
         " shares its hooks with a copy, which would be split with it: register hooks after "
         "copying or cloning, or parallelize before");
  }
}

void Parallelization::add(const RuledModule& ruled) {
  if (ruled.style == ParallelStyle::kReplicate) return;
  claim(ruled);
  lines_.push_back({absl::StrCat(ruled.name.empty() ? "(the module)" : ruled.name, " (",
                                 class_name(*ruled.module), ") ", parallel::name_of(ruled.style)),
                    ""});
  switch (ruled.style) {
    case ParallelStyle::kColumn:
      return add_column(ruled);
    case ParallelStyle::kRow:
      if (Linear* linear = linear_of(ruled.module)) return add_row(ruled, *linear);
      misfit(ruled, "Linear");
    case ParallelStyle::kHeads:
      return add_heads(ruled);
    case ParallelStyle::kVocabulary:
      return add_vocabulary(ruled);
    case ParallelStyle::kSequence:
      return add_sequence(ruled);
    case ParallelStyle::kReplicate:
      return;
  }
}

void Parallelization::add_column(const RuledModule& ruled) {
  const auto split = std::make_shared<parallel::ColumnSplit>(ranks_);
  if (Linear* linear = linear_of(ruled.module)) {
    const int64_t features = linear->options->out_features;
    check_divides(ruled, "output features", features);
    divide(ruled, *split, "weight", linear->weight, {.dim = 0, .size = features});
    divide(ruled, *split, "bias", linear->bias, {.dim = 0, .size = features});
  } else if (exact<Dropout>(ruled.module) == nullptr) {
    misfit(ruled, "Linear and Dropout");
  }
  assigned_.push_back({ruled.module, split});
}

void Parallelization::add_row(const RuledModule& ruled, Linear& linear) {
  const auto split = std::make_shared<parallel::RowSplit>(ranks_);
  const int64_t features = linear.options->in_features;
  check_divides(ruled, "input features", features);
  divide(ruled, *split, "weight", linear.weight, {.dim = 1, .size = features});
  assigned_.push_back({ruled.module, split});
}

void Parallelization::add_heads(const RuledModule& ruled) {
  if (auto* attention = exact<MultiheadAttention>(ruled.module)) {
    return add_attention(ruled, *attention);
  }
  auto* module = dynamic_cast<HeadParallel*>(ruled.module);
  if (module == nullptr) misfit(ruled, "MultiheadAttention and modules that are HeadParallel");
  const auto split = std::make_shared<parallel::HeadsSplit>(ranks_);
  const HeadProjections projections = module->head_projections();
  std::map<const Module*, std::string> names;
  for (const auto& [name, part] : ruled.module->named_modules()) names[part] = name;
  const auto name_of = [&](Linear* linear) -> const std::string& {
    const auto found = names.find(linear);
    if (found == names.end() || linear_of(linear) == nullptr) {
      fail(ErrorCode::kValue, "[parallelize] ", title(ruled),
           " has a projection that is no Linear among its parts: register the layers that "
           "head_projections() returns");
    }
    return found->second;
  };
  for (const auto& [linear, heads, packed] : projections.inputs) {
    const std::string& name = name_of(linear);
    claim({join(ruled.name, name), linear, ParallelStyle::kColumn});
    check_divides(ruled, absl::StrCat("heads of '", name, "'"), heads);
    const int64_t features = linear->options->out_features;
    if (heads < 1 || packed < 1 || features % (heads * packed) != 0) {
      fail(ErrorCode::kValue, "[parallelize] ", title(ruled), " says that '", name, "' of ",
           features, " output features has ", packed, " times ", heads, " heads");
    }
    const Cut rows{.dim = 0, .size = features, .packed = packed};
    divide(ruled, *split, name + ".weight", linear->weight, rows);
    divide(ruled, *split, name + ".bias", linear->bias, rows);
  }
  assigned_.push_back({ruled.module, split});
  for (Linear* linear : projections.outputs) {
    const std::string name = join(ruled.name, name_of(linear));
    add({name, linear, ParallelStyle::kRow});
  }
}

void Parallelization::add_attention(const RuledModule& ruled, MultiheadAttention& attention) {
  const auto split = std::make_shared<parallel::HeadsSplit>(ranks_);
  const int64_t e = attention.options->embed_dim;
  check_divides(ruled, "heads", attention.options->num_heads);
  const Cut rows{.dim = 0, .size = e}, packed{.dim = 0, .size = 3 * e, .packed = 3};
  divide(ruled, *split, "in_proj_weight", attention.in_proj_weight, packed);
  divide(ruled, *split, "q_proj_weight", attention.q_proj_weight, rows);
  divide(ruled, *split, "k_proj_weight", attention.k_proj_weight, rows);
  divide(ruled, *split, "v_proj_weight", attention.v_proj_weight, rows);
  divide(ruled, *split, "in_proj_bias", attention.in_proj_bias, packed);
  divide(ruled, *split, "bias_k", attention.bias_k, {.dim = 2, .size = e});
  divide(ruled, *split, "bias_v", attention.bias_v, {.dim = 2, .size = e});
  assigned_.push_back({ruled.module, split});
  add({join(ruled.name, "out_proj"), &attention.out_proj, ParallelStyle::kRow});
}

void Parallelization::add_vocabulary(const RuledModule& ruled) {
  if (Linear* linear = linear_of(ruled.module)) {
    const Cut rows{.dim = 0, .size = linear->options->out_features};
    const auto split = std::make_shared<parallel::VocabularySplit>(ranks_, rows.size);
    divide(ruled, *split, "weight", linear->weight, rows);
    divide(ruled, *split, "bias", linear->bias, rows);
    assigned_.push_back({ruled.module, split});
    return;
  }
  auto* table = exact<Embedding>(ruled.module);
  if (table == nullptr) misfit(ruled, "Embedding and Linear");
  if (table->options->max_norm.has_value() || table->options->scale_grad_by_freq) {
    fail(ErrorCode::kUnsupported, "[parallelize] ", title(ruled), " has the option ",
         table->options->max_norm.has_value() ? "max_norm" : "scale_grad_by_freq",
         ", which a table that is split does not have: leave it whole");
  }
  const Cut rows{.dim = 0, .size = table->options->num_embeddings};
  const auto split = std::make_shared<parallel::VocabularySplit>(ranks_, rows.size);
  divide(ruled, *split, "weight", table->weight, rows);
  assigned_.push_back({ruled.module, split});
}

void Parallelization::add_sequence(const RuledModule& ruled) {
  Module* module = ruled.module;
  if (exact<LayerNorm>(module) == nullptr && exact<RMSNorm>(module) == nullptr &&
      exact<Dropout>(module) == nullptr && exact<Embedding>(module) == nullptr) {
    misfit(ruled, "LayerNorm, RMSNorm, Dropout and Embedding");
  }
  assigned_.push_back({module, std::make_shared<parallel::SequenceSplit>(ranks_)});
}

void Parallelization::check_shared() const {
  struct Seen {
    std::string name;
    const Cut* cut;  // null for whole
  };
  std::map<const TensorImpl*, Seen> seen;
  detail::ParameterAccess::visit(module_, [&](const std::string& name, Tensor& member) {
    const auto at = cuts_.find(&member);
    const Cut* cut = at == cuts_.end() ? nullptr : &at->second;
    const auto [found, is_new] = seen.insert({member.impl(), {name, cut}});
    const Cut* other = found->second.cut;
    if (is_new || (cut == nullptr ? other == nullptr : other != nullptr && *cut == *other)) return;
    fail(ErrorCode::kValue, "[parallelize] '", found->second.name, "' and '", name,
         "' are one parameter, and the plan does not split them alike: give both modules rules "
         "such as kVocabulary");
  });
}

void Parallelization::sync() const {
  const NoGradGuard no_grad;
  for (const Tensor& parameter : module_.parameters()) group_.broadcast(parameter.detach(), 0);
  for (const Tensor& buffer : module_.buffers()) group_.broadcast(buffer.detach(), 0);
}

// Makes all parts before it replaces the first parameter.
void Parallelization::apply() {
  const NoGradGuard no_grad;
  std::map<const TensorImpl*, Tensor> parts;
  for (const auto& [member, cut] : cuts_) {
    const auto [part, is_new] = parts.insert({member->impl(), Tensor()});
    if (!is_new) continue;
    part->second = parallel::part_of(*member, cut, group_.rank(), group_.size());
    part->second.requires_grad_(member->requires_grad());
  }
  for (const auto& [member, cut] : cuts_) *member = parts.at(member->impl());
  for (const Assigned& each : assigned_) set_split(*each.module, each.split);
}

std::string Parallelization::text() const {
  std::string text;
  for (const Line& line : lines_) absl::StrAppend(&text, line.module, line.parameters, "\n");
  return text;
}

}  // namespace

std::string parallelize(Module& module, const ParallelPlan& plan, const Group& group,
                        const ParallelizeArgs& options) {
  const Group ranks = group.defined() ? group : distributed::world();
  Parallelization work(module, plan, ranks, options);
  std::string text = work.text();
  if (options.dry_run) return text;
  if (options.sync_parameters) work.sync();
  if (ranks.size() > 1) work.apply();
  for (const Tensor& parameter : module.parameters()) parameter.set_grad({});
  return text;
}

}  // namespace mytorch::nn
