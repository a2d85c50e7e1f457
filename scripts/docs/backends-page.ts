import { markdownTable } from '../../src/util/markdown.ts'
import { cellBackends, cells, lengthsText } from '../../tests/support/collective-cells.ts'
import { madeBy } from './made-by.ts'

const ranksText = (sizes: readonly number[]) => `${sizes[0]} to ${sizes[sizes.length - 1]}`

/** docs/reference/backends.md: every function by backend, as the specs run it. */
export const backendsPage = (): string =>
  [
    madeBy('tests/support/collective-cells.ts'),
    '',
    '# Functions by backend',
    '',
    'Number of ranks on which the tests run each function, by backend. Each rank compares its results with plain loops, bit for bit. The tests fail if they have not run every cell of this table.',
    '',
    markdownTable(
      [
        'function of `distributed`',
        'types',
        ...Object.keys(cellBackends).map((name) => `\`${name}\``),
      ],
      cells.map(({ call, types }) => [
        call
          .split(', ')
          .map((name) => `\`${name}\``)
          .join(', '),
        types.join(', ') || '(no arrays)',
        ...Object.values(cellBackends).map(ranksText),
      ]),
    ),
    '',
    `Arrays have ${lengthsText}. Reductions run with every \`op\` that the type supports. float16 is \`Float16Bits\`; a \`Float16Array\` is sent as its bits.`,
    '',
    'Ranks in one context run every type with every length, for each number of ranks; so do up to 4 tabs. With 5 to 9 tabs, each number runs every type and every length, but only some pairs of the two; the five numbers together cover all pairs. `TABRING_CELLS=pairs` runs every pair on every number of tabs.',
    '',
    '- `webrtc`: one tab per rank, over data channels that a signaling server sets up: `tests/all/e2e/collective-cells.spec.ts`.',
    '- `broadcast`: the same tabs over ports from a SharedWorker, which also introduces them: the same file.',
    '- `relay`: the same tabs over WebSockets through a signaling server: the same file.',
    '- `local`: ranks in one context over message channels: `tests/unit/distributed/collective-cells.spec.ts` up to 5, and the spec of that name in `tests/all` above.',
    '',
    '`tests/unit/peer/collective-matrix.spec.ts` tests each algorithm in simulated rings with random message delays ([collectives.md](../how-it-works/collectives.md)).',
    '',
  ].join('\n')
