#include "conformance/catalog.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

// Calls use(element) for every element of a file's array.
template <class F>
void for_each_in(const std::filesystem::path& path, F use) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kIo, "[check] cannot read " + path.string());
  try {
    Json all = Json::parse(file);
    if (!all.is_array()) throw Error(ErrorCode::kIo, "[check] " + path.string() + " is not a list");
    for (Json& element : all) use(element);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kIo, "[check] " + path.string() + ": " + error.what());
  }
}

OpRecord record(const Json& json) {
  OpRecord op;
  op.name = json.at("name");
  op.schema = json.at("schema");
  op.aliases = json.at("aliases").get<std::vector<std::string>>();
  op.declarations = json.at("declarations").get<std::vector<std::string>>();
  op.methods = json.at("methods").get<std::vector<std::string>>();
  op.doc = json.at("doc");
  op.accepts = json.at("accepts");
  op.meaning = json.at("meaning");
  op.family = json.at("family");
  op.promote = json.at("promote");
  op.autocast = json.at("autocast");
  op.fold = json.at("fold");
  op.gradient = json.at("grad").at("kind");
  op.derived_gradient = json.at("grad").at("derived");
  for (const Json& formula : json.at("grad").at("formulas")) {
    std::string text;
    for (const Json& arg : formula.at("args")) {
      text += (text.empty() ? "" : ", ") + arg.get<std::string>();
    }
    op.formulas.push_back(text + ": " + formula.at("text").get<std::string>());
  }
  op.kernel_optional = json.at("kernel_optional");
  op.has_kernel = json.at("has_kernel");
  op.derived = json.at("derived");
  op.inplace = json.at("inplace");
  op.out = json.at("out");
  op.types = json.at("types").get<std::map<std::string, std::string>>();
  op.nodes = json.at("nodes").get<std::set<std::string>>();
  json.at("approximate").get_to(op.approximate);
  op.cost = json.at("cost");
  op.tolerance = json.at("tolerance").get<std::map<std::string, double>>();
  op.backward_stable = json.at("backward_stable");
  op.non_finite_spreads = json.at("non_finite_spreads");
  const auto none = json.at("grad").at("no_grad").get<std::set<std::string>>();
  const auto with_formula = json.at("grad").at("args").get<std::set<std::string>>();
  for (const Json& a : json.at("args")) {
    OpArg arg{a.at("name"), a.at("type"), a.at("written"), false, a.at("required")};
    const auto type = op.types.find(arg.name);
    arg.differentiable = arg.is_tensor() && op.differentiable() && !none.contains(arg.name) &&
                         (type == op.types.end() || type->second == "same" ||
                          (type->second == "any" && with_formula.contains(arg.name)));
    op.args.push_back(arg);
  }
  for (const Json& result : json.at("results")) op.result_names.push_back(result.at("name"));
  return op;
}

}  // namespace

bool OpRecord::writes() const {
  for (const OpArg& a : args) {
    if (a.written) return true;
  }
  return false;
}

bool OpRecord::random() const { return arg("generator") != nullptr; }

bool OpRecord::unspecified() const {
  return name.starts_with("empty") || name.starts_with("new_empty");
}

std::string OpRecord::inplace_name() const {
  const size_t dot = name.find('.');
  return name.substr(0, dot) + "_" + (dot == std::string::npos ? "" : name.substr(dot));
}

const OpArg* OpRecord::arg(const std::string& arg_name) const {
  for (const OpArg& a : args) {
    if (a.name == arg_name) return &a;
  }
  return nullptr;
}

std::vector<OpRecord> load_catalog(const std::string& folder) {
  std::vector<OpRecord> ops;
  std::map<std::string, size_t> index;
  for_each_in(folder + "/ops.json", [&](const Json& json) {
    ops.push_back(record(json));
    index[ops.back().name] = ops.size() - 1;
  });
  const std::string samples = folder + "/samples.json";
  for_each_in(samples, [&](Json& sample) {
    const std::string name = sample.at("op");
    const auto found = index.find(name);
    if (found == index.end()) {
      throw Error(ErrorCode::kIo, "[check] " + samples + ": unknown operator '" + name + "'");
    }
    ops[found->second].samples.push_back(std::move(sample));
  });
  return ops;
}

std::string share_folder() {
  namespace fs = std::filesystem;
  std::string tried;
  std::vector<fs::path> places;
  if (const char* given = std::getenv("MYTORCH_SHARE")) {
    places.emplace_back(given);
  } else {
    const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
    places = {here / "../share/mytorch", here / "../generated/share"};
    // Programs of a build tree may lie below its bin directory.
    for (fs::path up = here; up.has_relative_path(); up = up.parent_path()) {
      places.push_back(up / "generated/share");
    }
  }
  for (const fs::path& place : places) {
    if (fs::exists(place / "ops.json")) return place.lexically_normal().string();
    tried += "\n  " + place.lexically_normal().string();
  }
  throw Error(ErrorCode::kIo, "[check] cannot find ops.json; set MYTORCH_SHARE. Searched:" + tried);
}

}  // namespace mytorch::conformance
