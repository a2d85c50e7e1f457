import type { DemoName } from '../../demos/metas.ts'
import { meta as playground } from '../../demos/playground/meta.ts'

/** One setting of a table's row or column, as it stands in the page's address. */
export interface Setting {
  readonly words: string
  readonly query: Readonly<Record<string, string | number>>
}

/** A table of a demo's README: a run for each row with each column. */
export interface DemoTable {
  readonly demo: DemoName
  /** What the rows are. */
  readonly head: string
  readonly rows: readonly Setting[]
  readonly columns: readonly Setting[]
}

const ranks = (count: number): Setting => ({
  words: count === 1 ? '1 rank' : `${count} ranks in one tab`,
  query: { ranks: count },
})

/** Where the four files of MNIST's layout are served, if they are. */
export const filesAt = '/data/'

const digits: DemoTable = {
  demo: 'digits',
  head: 'digits, after 125 steps of 64',
  rows: [
    { words: 'drawn, mlp, seed 0', query: { model: 'mlp', seed: 0, epochs: 1 } },
    { words: 'drawn, mlp, seed 1', query: { model: 'mlp', seed: 1, epochs: 1 } },
    { words: 'drawn, cnn, seed 0', query: { model: 'cnn', seed: 0, epochs: 1 } },
    {
      words: 'files, mlp, seed 0',
      query: { data: filesAt, model: 'mlp', seed: 0, steps: 125 },
    },
    {
      words: 'files, cnn, seed 0',
      query: { data: filesAt, model: 'cnn', seed: 0, steps: 125 },
    },
  ],
  columns: [ranks(1), ranks(3)],
}

const points: DemoTable = {
  demo: 'playground',
  head: 'points, after 500 steps of 96',
  rows: [
    { words: 'spirals, seed 0', query: { data: 'spiral', seed: 0 } },
    { words: 'spirals, seed 1', query: { data: 'spiral', seed: 1 } },
    { words: 'spirals, seed 2', query: { data: 'spiral', seed: 2 } },
    { words: 'circles, seed 0', query: { data: 'circles', seed: 0 } },
    { words: 'quarters, seed 0', query: { data: 'xor', seed: 0 } },
    { words: 'moons, seed 0', query: { data: 'moons', seed: 0 } },
    {
      words: 'spirals, seed 0, own sectors, exchange off',
      query: { data: 'spiral', seed: 0, strategy: 'alone', partition: 'own-slice' },
    },
  ],
  columns: [ranks(1), ranks(3)],
}

const networks: DemoTable = {
  demo: 'playground',
  head: 'network, 1 rank, after 500 steps of 96',
  rows: Object.keys(playground.models).map((model) => ({ words: model, query: { model } })),
  columns: Object.keys(playground.data).map((data) => ({ words: data, query: { data } })),
}

const picture: DemoTable = {
  demo: 'picture',
  head: 'network, after 300 steps of 512',
  rows: [
    { words: 'waves, seed 0', query: { model: 'waves', seed: 0, steps: 300 } },
    { words: 'waves, seed 1', query: { model: 'waves', seed: 1, steps: 300 } },
    { words: 'waves, seed 2', query: { model: 'waves', seed: 2, steps: 300 } },
    { words: 'place, seed 0', query: { model: 'place', seed: 0, steps: 300 } },
  ],
  columns: [ranks(1), ranks(3)],
}

const text: DemoTable = {
  demo: 'text',
  head: 'steps of 16',
  rows: [
    { words: '120, seed 0', query: { seed: 0, steps: 120 } },
    { words: '120, seed 1', query: { seed: 1, steps: 120 } },
    { words: '200, seed 0', query: { seed: 0, steps: 200 } },
  ],
  columns: [ranks(1), ranks(2)],
}

const tables: Readonly<Record<DemoName, readonly DemoTable[]>> = {
  digits: [digits],
  playground: [points, networks],
  picture: [picture],
  text: [text],
}

export const demoTables: readonly DemoTable[] = Object.values(tables).flat()

/** Whether a row can be run without files that somebody has to serve. */
export const needsFiles = ({ query }: Setting): boolean => query.data === filesAt
