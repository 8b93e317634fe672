#include "options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "models.h"

std::optional<Options> parse_options(int argc, char** argv, int* status) {
  Options options;
  CLI::App app("Trains a small network on MNIST or on a data set in the same format.", "mnist");
  const auto natural = CLI::Range(int64_t{1}, int64_t{1} << 31);
  app.add_option("--model", options.model, "Network")
      ->check(CLI::IsMember(model_names()))
      ->capture_default_str();
  app.add_option("--data", options.data,
                 "Directory with the four MNIST files, plain or gzipped (default: Debian's package "
                 "dataset-fashion-mnist)");
  app.add_option("--device", options.device, "Device: cpu, cuda, ...")->capture_default_str();
  app.add_option("--threads", options.threads, "Number of threads (default: all processors)")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--distributed", options.distributed,
               "Train with the other ranks of the launcher, each with its part of every batch");
  auto* epochs = app.add_option("--epochs", options.epochs,
                                "Number of passes over the training images; 0 only measures the "
                                "accuracy (default: 10 for mlp, 5 for cnn)")
                     ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  app.add_option("--batch", options.batch, "Images per step")
      ->check(natural)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the random numbers")
      ->check(
          [](const std::string& text) { return text[0] == '-' ? "not a whole number from 0" : ""; })
      ->capture_default_str();
  auto* lr =
      app.add_option("--lr", options.lr, "Maximum learning rate (default: depends on the network)")
          ->check([](const std::string& text) {
            const double value = std::strtod(text.c_str(), nullptr);
            return value > 0 && std::isfinite(value) ? "" : "not a number above 0";
          });
  app.add_option("--save", options.save, "Write the network to this file after each epoch");
  app.add_option("--load", options.load, "Start with the network in this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *status = app.exit(error, std::cout, std::cerr) == 0 ? 0 : 1;
    return std::nullopt;
  }
  const Recipe recipe = recipe_of(options.model);
  if (epochs->empty()) options.epochs = recipe.epochs;
  if (lr->empty()) options.lr = recipe.lr;
  return options;
}
