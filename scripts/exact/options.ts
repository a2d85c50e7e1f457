import { Command, InvalidArgumentError } from 'commander'
import { metas } from '../../demos/metas.ts'
import type { DemoMeta } from '../../src/trainer/settings/demo-meta.ts'

/** What one `npm run exact` is to do. */
export interface ExactOptions {
  readonly tabs: readonly number[]
  /** Each is trained in each number of tabs. */
  readonly rows: readonly Row[]
  readonly compare: boolean
  readonly isChurn: boolean
  readonly seedOfChurn: number
}

/** A model and an optimizer, whose runs all end with the same hash. */
export interface Row {
  readonly model: string
  readonly optimizer: string
  /** Of `npm run train`, all but the tabs. */
  readonly flags: readonly string[]
}

interface Flags {
  tabs: number[]
  model?: string[]
  optimizer: string[]
  demo?: string
  data?: string
  dataFile?: string
  compare?: true
  churn?: true
  seedOfChurn: number
}

const byName: Readonly<Record<string, DemoMeta>> = metas
/** What `all` means. */
const allModels = ['mlp', 'cnn', 'cnn-bn', 'gpt']
const optimizers = ['adamw', 'sgd']

const counts = (text: string): number[] => {
  const tabs = text.split(',').map(Number)
  if (tabs.every((count) => Number.isInteger(count) && count >= 1)) return tabs
  throw new InvalidArgumentError('Expected whole numbers from 1, as in 1,2,3.')
}

/** Names with commas between, each once. */
const namesOr = (all: readonly string[]) => (text: string) => [
  ...new Set(text === 'all' ? all : text.split(',')),
]

const defineCommand = (): Command =>
  new Command('npm run exact --')
    .description(
      "Trains with --exact in each number of tabs, one run after the other, and compares the weights' hashes: for each model with each optimizer. Exits with 1 where they differ. Takes the flags of npm run train, too: --steps, --virtual-workers, --batch-size, ...",
    )
    .option('--tabs <list>', 'numbers of tabs', counts, [1, 2, 3])
    .option(
      '--model <list>',
      `models, of any demos: ${allModels.join(',')} or all for these (default: the demo's first)`,
      namesOr(allModels),
    )
    .option('--optimizer <list>', `${optimizers.join(',')} or all`, namesOr(optimizers), ['adamw'])
    .option('--demo <name>', 'demo of all the models (default: the first that has the model)')
    .option('--data <name or dir>', 'as of npm run train, for models that train on digits')
    .option('--data-file <file>', 'as of npm run train, for models of other demos')
    .option(
      '--compare',
      'train without --exact too, to see that hashes differ there and what exact costs',
    )
    .option(
      '--churn',
      'train while tabs crash, close and join, with one tab among six for a while, and with a slow tab, against one undisturbed tab',
    )
    .option('--seed-of-churn <number>', 'which tabs are lost, and when', Number, 1)
    .allowUnknownOption()
    .allowExcessArguments()

/** Returns what the arguments (without node and script) ask for. Prints help and errors, and exits, as commander does. */
export function parseExact(argv: readonly string[]): ExactOptions {
  const command = defineCommand()
  command.parse(argv, { from: 'user' })
  const { tabs, compare, churn, seedOfChurn, ...chosen } = command.opts<Flags>()
  const models = chosen.model ?? [Object.keys(byName[chosen.demo ?? 'digits']?.models ?? {})[0]]
  const rows = models.flatMap((model) =>
    chosen.optimizer.map((optimizer) => {
      const place = flagsOf(model, chosen, models.length > 1)
      const flags = [...place, '--optimizer', optimizer, ...command.args]
      return { model, optimizer, flags }
    }),
  )
  if (churn && rows.length > 1)
    command.error('exact: --churn plays one model with one optimizer. Choose one of each.')
  return { tabs, rows, compare: compare ?? false, isChurn: churn ?? false, seedOfChurn }
}

/** The demo, model and data of one run; among others each of the two kinds of data goes to the demos that are trained on it. */
function flagsOf(
  model: string,
  { demo: chosen, data, dataFile }: Pick<Flags, 'demo' | 'data' | 'dataFile'>,
  isOneOfMany: boolean,
): string[] {
  const demos = Object.keys(byName)
  // The command refuses what no demo has.
  const demo = chosen ?? demos.find((name) => Object.hasOwn(byName[name].models, model)) ?? demos[0]
  const takesFolder = byName[demo]?.address !== undefined
  const given = {
    demo,
    model,
    data: !isOneOfMany || takesFolder ? data : undefined,
    'data-file': !isOneOfMany || !takesFolder ? dataFile : undefined,
  }
  return Object.entries(given).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, value],
  )
}
