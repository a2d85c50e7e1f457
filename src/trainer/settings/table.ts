import * as v from 'valibot'
import { pipelinesOf } from './parallel.ts'
import { type OfDemo, type OfDemos, oneOf, positive, setting, whole } from './row.ts'

/**
 * The settings of a run, a row each, in the order in which people see them.
 *
 * From the rows come the schema of `config.ts`, the form, the page's address, the flags of `npm run train` and the table in
 * docs/reference/page.md.
 */

/** Samples of a step, over all ranks: more than any demo's data has, and few enough that a step of small models fits a GPU. */
export const maxInBatch = 65_536

const name = v.pipe(v.string(), v.nonEmpty(), v.maxLength(100))

const code = (text: string) => `\`${text}\``

/** Lists the values of each demo. */
const listed = (demos: OfDemos, of: (demo: OfDemo) => readonly string[]): string =>
  Object.entries(demos)
    .map(([name, demo]) => `${name}: ${of(demo).join(', ')}`)
    .join('; ')

const withoutExchange = {
  with: 'strategy=alone',
  why: 'strategy=alone exchanges nothing',
  remedy: ', where ranks exchange nothing. Omit it.',
}

export const rows = {
  demo: setting({
    schema: name,
    kind: 'choice',
    label: 'Experiment',
    isBasic: true,
    onResume: 'same',
    flag: 'name',
    help: 'demo to train',
    doc: (demos) => Object.keys(demos).map(code).join(', '),
    docDefault: (demos) => code(Object.keys(demos)[0]),
  }),
  model: setting({
    schema: name,
    kind: 'choice',
    label: 'Model',
    isBasic: true,
    onResume: 'same',
    flag: 'name',
    help: (demos) =>
      `model (${listed(demos, ({ models }) => Object.keys(models))}; default: the first)`,
    doc: "the demo's models: `mlp`, `cnn` or `cnn-bn` for digits",
    docDefault: "the demo's first",
  }),
  /** A data set that the demo makes; `given`; or an address relative to the page, such as that of a folder with the four IDX files. */
  data: setting({
    schema: v.pipe(v.string(), v.nonEmpty(), v.maxLength(1000)),
    kind: 'data',
    label: 'Data',
    isBasic: true,
    flag: 'name or dir',
    help: (demos) =>
      `one of the demo's data sets (${listed(demos, ({ data }) => Object.keys(data))}); for digits also a folder with MNIST-layout IDX files, plain or .gz (default: the first)`,
    doc: "the demo's data sets, or for digits the address of a folder with the four IDX files",
    docDefault: "the demo's first",
  }),
  epochs: setting({
    schema: v.optional(whole(1), 3),
    label: 'Epochs',
    isBasic: true,
    hint: 'Passes over the training data.',
    onResume: 'own',
    idle: { with: 'steps', why: 'steps says how long to train' },
    flag: 'n',
  }),
  batchSize: setting({
    schema: v.optional(whole(1, maxInBatch), 64),
    label: 'Batch size',
    isBasic: true,
    unit: 'samples',
    hint: 'Samples in each step, over all ranks. Each rank takes its share.',
    onResume: 'same',
    flag: 'n',
    doc: 'global batch size: samples per step over all ranks',
  }),
  optimizer: setting({
    ...oneOf({ adamw: 'AdamW', sgd: 'SGD, momentum 0.9' }, 'adamw'),
    label: 'Optimizer',
    isBasic: true,
    onResume: 'same',
    flag: 'name',
    doc: '`adamw`, or `sgd` with momentum 0.9',
  }),
  lr: setting({
    schema: v.optional(v.pipe(v.number(), v.finite(), v.minValue(0))),
    label: 'Learning rate',
    isBasic: true,
    placeholder: ({ model }, { models }) => String(models[model]?.lr ?? ''),
    isLive: true,
    flag: 'x',
    help: (demos) =>
      `learning rate (default: ${listed(demos, ({ models }) => Object.entries(models).map(([name, { lr }]) => `${name} ${lr}`))})`,
    doc: 'learning rate',
    docDefault: "the model's own",
  }),
  /** The norm of all gradients is scaled down to this at most. Undefined: nothing is clipped. */
  clipNorm: setting({
    schema: v.optional(positive),
    label: 'Clip gradients to',
    unit: 'norm',
    placeholder: 'none',
    hint: 'Scales the gradients of a step down where their norm is larger. Not with pipelines.',
    refusedWith: ['pipelines'],
    flag: 'x',
    help: 'scale gradients down to this norm where it is larger (default: none)',
    doc: 'scales gradients down to this norm where it is larger, as `clip_grad_norm_` does; not with pipelines',
  }),
  /**
   * `strangers`: ranks whose gradients are far larger than those of the others are left out of a step. `auto`: `members`, unless the page that
   * starts the run has chosen otherwise. It scales long gradients down, with which the demos have reached their results too.
   */
  trust: setting({
    ...oneOf(
      {
        auto: 'automatic: trusted on this computer, strangers in a network',
        members: 'trusted: all gradients count',
        strangers: 'strangers: too large gradients do not count',
      },
      'auto',
    ),
    label: 'Other tabs',
    hint: 'Among strangers, gradients that are not numbers, or 10 times as large as the others, do not count, and the status names their tab. Large ones count less. Whole replicas only.',
    keepsResult: true,
    refusedWith: ['sums'],
    asks: (value) => value === 'strangers',
    flag: 'whom',
    help: 'strangers: gradients that are not numbers, or far larger than those of the others, do not count in a step',
    onCommand: { choices: ['members', 'strangers'], default: 'members' },
    doc: "`members`: all gradients count. `strangers`: those that are not numbers, or over 10 times as large as the others', do not count; the status names the tab. With `parallel=dp`, `strategy=ddp`, without `exact`",
    docDefault:
      '`auto`: `strangers` where the page is served to a network, or its server has not said, else `members`',
  }),
  /** How the gradients of the ranks become one: all but the mean count each rank the same, and few of them cannot decide it. */
  aggregation: setting({
    ...oneOf(
      {
        mean: 'their mean',
        clipped: 'a mean with clipped distances',
        trimmedMean: 'the mean without the extremes',
        median: 'their median',
      },
      'mean',
    ),
    label: 'Combine gradients by',
    hint: 'All but the mean keep few tabs with wrong gradients from deciding, need 3 tabs, and learn less from data that differs between tabs. Whole replicas only.',
    refusedWith: ['sums'],
    flag: 'how',
    help: "how the ranks' gradients become one: all but the mean count each rank the same, and a few wrong ones cannot decide it",
    doc: "how the ranks' gradients become one: `mean`; `median`, `trimmedMean` or `clipped`, which few wrong gradients cannot decide. They count each rank the same, need 3 ranks or more, and learn less where the ranks' data differs. With `parallel=dp`, `strategy=ddp`, without `exact`",
  }),
  /**
   * `dp`: each rank has the whole model. `fsdp`: parameters, gradients and optimizer state are divided over the ranks. `pp=N`: the layers are, in
   * pipelines of N stages; `pp=N,dp=M` also says how many pipelines.
   */
  parallel: setting({
    schema: v.optional(
      v.pipe(
        v.string(),
        v.check(
          (how) => how === 'dp' || how === 'fsdp' || pipelinesOf(how) !== undefined,
          'dp, fsdp, pp=N or pp=N,dp=M',
        ),
      ),
      'dp',
    ),
    kind: 'choice',
    label: 'Parallel',
    choices: [
      ['dp', 'whole model on each rank'],
      ['fsdp', 'sharded (FSDP)'],
      ['pp=2', 'pipelines of 2 stages'],
      ['pp=4', 'pipelines of 4 stages'],
    ],
    hint: 'For models that do not fit on one rank. Sharded: each has a part of every layer. Pipeline: each has some of the layers.',
    refusedWith: ['alone', 'exact'],
    flag: 'how',
    help: 'dp: the whole model on each rank; fsdp: parameters, gradients and optimizer state divided over the ranks; pp=N: pipelines of N stages, as many as the ranks allow; pp=N,dp=M: M of them',
    doc: '`dp`: each rank has the whole model; `fsdp`: parameters, gradients and optimizer state are divided over the ranks; `pp=2`, `pp=4`: as many pipelines of 2 or 4 stages as the ranks allow; `pp=2,dp=3`: 3 of 2',
  }),
  /** `alone`: gradients are not exchanged; each rank trains a separate replica from the same first parameters. */
  strategy: setting({
    ...oneOf(
      {
        ddp: 'on: gradients averaged over all ranks',
        alone: 'off: each rank trains its own model',
      },
      'ddp',
    ),
    label: 'Exchange',
    isBasic: true,
    outlivesDemo: true,
    refusedWith: ['exact'],
    flag: 'name',
    doc: '`alone`: no exchange, each rank trains its own model',
  }),
  /** `own-slice`: each rank draws from its own contiguous part of the data, in the data's own order. */
  partition: setting({
    ...oneOf({ shuffled: 'all samples, shuffled', 'own-slice': 'its own slice' }, 'shuffled'),
    label: 'Each rank draws from',
    isBasic: true,
    hint: 'With its own slice, each rank sees a different, contiguous part of the data.',
    outlivesDemo: true,
    onResume: 'same',
    refusedWith: ['exact'],
    flag: 'name',
    doc: '`own-slice`: each rank draws from its own part of the data',
  }),
  seed: setting({
    schema: v.optional(whole(0), 0),
    label: 'Seed',
    isBasic: true,
    hint: 'The same seed gives the same bits on the same kind of adapter; with 3 ranks or more, only with the same bucket cap.',
    outlivesDemo: true,
    onResume: 'same',
    flag: 'n',
    doc: 'seed of the parameters and of the order of samples',
  }),
  /** `float16`: products under autocast, the loss scaled by a GradScaler. */
  precision: setting({
    ...oneOf({ float32: 'float32', float16: 'float16 products, scaled loss' }, 'float32'),
    label: 'Precision',
    onResume: 'same',
    flag: 'dtype',
    help: 'float16: matrix products under autocast, with a gradient scaler',
    doc: '`float32`, or `float16` products with loss scaling',
  }),
  evaluateEvery: setting({
    schema: v.optional(whole(1)),
    label: 'Test on held-out samples every',
    unit: 'steps',
    placeholder: 'epoch',
    hint: "Also at each epoch's end.",
    keepsResult: true,
    flag: 'n',
    help: "evaluate on held-out samples every n steps, in addition to each epoch's end",
    doc: "tests on held-out samples every N steps, and at each epoch's end",
    docDefault: "at each epoch's end",
  }),
  steps: setting({
    schema: v.optional(whole(1)),
    label: 'Steps',
    placeholder: 'whole epochs',
    hint: 'Ends the run after this many steps.',
    onResume: 'own',
    flag: 'n',
    doc: 'number of steps to train, instead of `epochs`',
  }),
  /** At most so many steps a second, so that people can follow; it changes no bits. Undefined or 0: as fast as they go. */
  maxStepsPerSec: setting({
    schema: v.optional(whole(0, 1000)),
    label: 'Pace',
    unit: 'steps/s',
    placeholder: 'full speed',
    hint: 'At most this many steps per second, so that you can watch. Empty or 0: full speed. Results stay the same.',
    onPage: ({ pace }) => String(pace ?? ''),
    isLive: true,
    onResume: 'own',
    doc: 'at most N steps per second, to watch; changes no results; 0 is full speed',
    docDefault: '60 for playground and picture, else full speed',
  }),
  bucketCapMb: setting({
    schema: v.optional(positive),
    label: 'Bucket cap',
    unit: 'MB',
    placeholder: 'automatic',
    hint: 'Gradients travel in buckets of about this size. If empty, the best size is measured, once for the same members.',
    onResume: 'own',
    idle: withoutExchange,
    flag: 'x',
    doc: 'largest gradient bucket in MiB',
    docDefault: 'measured; 1 with `exact`',
  }),
  hashEvery: setting({
    schema: v.optional(whole(1), 50),
    label: 'Compare replicas every',
    unit: 'steps',
    hint: 'Compares the parameter hashes of all ranks. A difference ends the run.',
    onResume: 'own',
    idle: withoutExchange,
    flag: 'n',
    help: 'compare the parameters of all ranks every n steps',
    doc: "compares the ranks' parameters every N steps",
  }),
  /** True if the run continues when a rank is lost, and admits newcomers, where it `isElastic`. */
  elastic: setting({
    schema: v.optional(v.boolean(), true),
    label: 'Continue without lost tabs',
    hint: 'A tab that closes or stops answering does not end the run, and a tab that opens the link joins it. With whole replicas only.',
    flag: '',
    help: 'end when a tab is lost, instead of continuing without it while another one joins',
    doc: 'the run continues when a tab is lost, and admits tabs that open the link; with `parallel=dp` and `strategy=ddp`; `false`: a lost tab ends it',
  }),
  /** True if the result is the same bits on any number of ranks: `ddp/exact`. */
  exact: setting({
    schema: v.optional(v.boolean(), false),
    label: 'Same bits on any tabs',
    hint: 'The weights are the same bits on any number of tabs with GPUs of the same kind, whatever tabs are lost or join. Steps take longer. With whole replicas only.',
    flag: '',
    help: 'the same bits on any number of tabs, whatever tabs are lost or join',
    doc: '`true`: the result is the same bits on any number of tabs with GPUs of the same kind, whatever tabs are lost or join. The status names a tab that computes other bits. *Download log* appears when the run finishes, fails or is stopped',
  }),
  virtualWorkers: setting({
    schema: v.optional(whole(1, 64), 8),
    label: 'Virtual workers',
    hint: 'For the same bits on any tabs: into how many parts the batch falls. They decide the bits, and tabs share them.',
    idle: { without: 'exact=true', why: 'only exact=true has them' },
    flag: 'n',
    doc: 'with `exact`: into how many parts the batch falls, 1 to 64; they decide the bits',
  }),
  /**
   * `asked`: any rank may save the run in its own place for checkpoints, as it goes on, in a pause and at the end; what cannot be written ends
   * nothing. `auto`: rank 0 also saves without being asked, every few seconds unless `checkpointEvery` says when, in each pause and at the end; with `exact` every rank.
   * `none` is the command's, which has `--checkpoint-dir`.
   */
  saves: setting({
    schema: v.optional(v.picklist(['none', 'asked', 'auto']), 'none'),
    label: 'Save the run',
    choices: [
      ['auto', 'automatically, and on request'],
      ['asked', 'on request'],
    ],
    hint: "Automatically: in the host's browser, about every 10 seconds, in at most 2 % of the time (with the same bits on any tabs, in each tab's); also in each pause, when stopped and at the end. The newest two of each of the last three runs stay; what you save stays until you delete it.",
    onPage: () => 'auto',
    onResume: 'own',
    doc: '`auto`: saves about every 10 s; `asked`: only on request',
    docDefault: '`auto`',
  }),
  /** A checkpoint is saved after so many steps, and at each epoch's end; 0: at the epochs' ends alone. Undefined: none is saved. */
  checkpointEvery: setting({
    schema: v.optional(whole(0)),
    label: 'Checkpoint every',
    unit: 'steps',
    placeholder: 'about 10 s',
    hint: "Also at each epoch's end; 0: only then. Instead of every 10 seconds.",
    onResume: 'own',
    refusedWith: ['alone'],
    flag: 'n',
    help: 'with --checkpoint-dir: also after every n steps',
    onCommand: { min: 1 },
    doc: "saves every N steps instead of every 10 s; 0: at epochs' ends only",
    docDefault: 'about 10 s',
  }),
  /** `latest`, `best`, or the name of a file: the checkpoint to resume from. Undefined or empty: a new run. */
  resume: setting({
    schema: v.optional(v.pipe(v.string(), v.maxLength(200))),
    kind: 'choice',
    label: 'Start from',
    choices: [
      ['', 'the beginning'],
      ['latest', "this browser's latest checkpoint"],
      ['best', "this browser's best checkpoint"],
    ],
    placeholder: 'the beginning',
    hint: 'As saved by rank 0 in this browser, with the settings of that run. With the same bits on any tabs, the latest is the newest that most tabs have.',
    onResume: 'own',
    refusedWith: ['alone'],
    flag: 'which',
    help: 'resume from the latest or the best checkpoint, or from a file',
    doc: '`latest` or `best` checkpoint in this browser; with `exact`, `latest` is the newest that most tabs have',
  }),
  /** Measure kernel variants on rank 0 instead of taking the fixed table. */
  tune: setting({
    schema: v.optional(v.boolean(), false),
    label: 'Measure kernels first',
    hint: 'Rank 0 times the kernel variants and uses the fastest, not the built-in table.',
    onResume: 'own',
    refusedWith: ['exact'],
    flag: '',
    help: 'measure kernel variants in this run, instead of using the fixed table',
    doc: '`true`: rank 0 times the kernel variants first',
  }),
}
