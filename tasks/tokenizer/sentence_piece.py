"""A sentencepiece model, run by sentencepiece itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import sentencepiece

from configs.errors import PipelineError
from tasks.tokenizer import Ids
from tasks.tokenizer.pieces import text_piece


class SentencePieceTokenizer:
    """A `.model` file.

    Raises:
        PipelineError: the file is no sentencepiece model.
    """

    def __init__(self, file: Path) -> None:
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(file))
        except (RuntimeError, OSError) as error:
            raise PipelineError(f"{file}: not a sentencepiece model: {error}") from None
        model = self._model
        self.vocab_size = int(model.get_piece_size())
        self.special_tokens: Mapping[str, int] = {
            model.id_to_piece(index): index for index in range(self.vocab_size) if model.is_control(index)
        }
        ends = {"eos": model.eos_id(), "bos": model.bos_id(), "pad": model.pad_id()}
        self.suggested: Mapping[str, str] = {role: model.id_to_piece(end) for role, end in ends.items() if end >= 0}
        self.unknown: int | None = int(model.unk_id())

    def token_id(self, token: str) -> int | None:
        number = int(self._model.piece_to_id(token))
        return None if number == self.unknown and token != self._model.id_to_piece(number) else number

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [np.array(ids, np.uint32) for ids in self._model.encode(list(texts), out_type=int, num_threads=1)]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._model.decode([int(number) for number in ids]))

    def piece(self, token: int) -> bytes:
        return text_piece(self._model.id_to_piece(int(token)))
