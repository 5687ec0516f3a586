"""A mindformers YAML with the meaning of its keys: defaults filled in, one name for what two families call differently."""

from dataclasses import dataclass
from typing import Any

MODEL_NAMES = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
}
SEMI_AUTO, AUTO = (1, "1", "semi_auto_parallel"), (2, "2", "auto_parallel")
DEVICES_A_SERVER = 8


@dataclass(frozen=True)
class View:
    """The YAML's content. `devices`: that will train, if that is known."""

    content: dict[str, Any]
    given_devices: int | None
    servers: int

    def section(self, name: str) -> dict[str, Any]:
        found = self.content.get(name)
        return found if isinstance(found, dict) else {}

    def parallel(self, name: str, default: int = 1) -> int:
        """Return a number of `parallel_config`."""
        return whole(self.section("parallel_config").get(name), default)

    @property
    def model(self) -> dict[str, Any]:
        found = self.section("model").get("model_config")
        return found if isinstance(found, dict) else {}

    def of_model(self, name: str) -> int | None:
        """Return a number of the model by its legacy name, whichever the family uses."""
        for key in (name, MODEL_NAMES.get(name, name)):
            if isinstance(self.model.get(key), int):
                return int(self.model[key])
        return None

    def model_key(self, name: str) -> str:
        key = name if name in self.model or name not in MODEL_NAMES else MODEL_NAMES[name]
        return f"model.model_config.{key}"

    @property
    def legacy(self) -> bool:
        return bool(self.content.get("use_legacy", True))

    @property
    def heads(self) -> int | None:
        return self.of_model("num_heads")

    @property
    def kv_heads(self) -> int | None:
        return self.of_model("n_kv_heads") or self.heads

    @property
    def dp(self) -> int:
        return self.parallel("data_parallel")

    @property
    def mp(self) -> int:
        return self.parallel("model_parallel")

    @property
    def cp(self) -> int:
        return self.parallel("context_parallel")

    @property
    def pp(self) -> int:
        return self.parallel("pipeline_stage")

    @property
    def devices(self) -> int:
        return self.given_devices or self.dp * self.mp * self.cp * self.pp

    @property
    def semi_auto(self) -> bool:
        mode = self.section("parallel").get("parallel_mode", 1)
        return bool(self.content.get("use_parallel")) and mode in (*SEMI_AUTO, *AUTO)

    @property
    def data_parallel_mode(self) -> bool:
        return bool(self.content.get("use_parallel")) and self.section("parallel").get("parallel_mode", 1) in (0, "0")

    @property
    def dataset(self) -> dict[str, Any]:
        return self.section("train_dataset")

    @property
    def loader(self) -> dict[str, Any]:
        found = self.dataset.get("data_loader")
        return found if isinstance(found, dict) else {}

    @property
    def megatron(self) -> dict[str, Any] | None:
        """The Megatron loader's `config`, where it is used."""
        if self.loader.get("type") != "BlendedMegatronDatasetDataLoader":
            return None
        found = self.loader.get("config")
        return found if isinstance(found, dict) else {}

    @property
    def sink(self) -> bool:
        return bool(self.section("runner_config").get("sink_mode", True))

    @property
    def batch_size(self) -> int:
        return whole(self.section("runner_config").get("batch_size"), 1)

    @property
    def accumulation(self) -> int:
        return whole(self.section("runner_config").get("gradient_accumulation_steps"), 1)

    @property
    def global_batch(self) -> int:
        """Return the sequences of a step, as mindformers works them out."""
        if not self.semi_auto:
            return self.batch_size * (self.devices if self.content.get("use_parallel") else 1)
        times = self.parallel("micro_batch_num") if self.pp > 1 else self.accumulation
        return self.batch_size * self.dp * times * whole(self.content.get("micro_batch_interleave_num"), 1)

    def callback(self, kind: str) -> dict[str, Any] | None:
        found = self.content.get("callbacks")
        named = (
            [one for one in found if isinstance(one, dict) and one.get("type") == kind]
            if isinstance(found, list)
            else []
        )
        return named[0] if named else None


def whole(value: Any, default: int) -> int:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else default
