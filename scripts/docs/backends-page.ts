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
    'How many ranks the tests run each function on, by backend. Each rank compares its results with plain loops, bit for bit; the tests fail where they have not run every cell of this table.',
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
    `Arrays have ${lengthsText}. Reductions go through every \`op\` that the type has. float16 is \`Float16Bits\`; a \`Float16Array\` goes as the bits in it.`,
    '',
    'Ranks of one context run every type with every length on each number of ranks, and so do tabs up to 4. From 5 to 9 tabs each number runs every type and every length, but not every pair of the two: the pairs go round, so that these five numbers together have run them all. `TABRING_CELLS=pairs` runs every pair on every number of tabs.',
    '',
    '- `webrtc`: a tab for each rank, over data channels, met at a signaling server: `tests/all/e2e/collective-cells.spec.ts`.',
    '- `broadcast`: the same tabs over ports that a SharedWorker hands out, met there: the same file.',
    '- `relay`: the same tabs over WebSockets through a signaling server: the same file.',
    '- `local`: ranks of one context over message channels: `tests/unit/distributed/collective-cells.spec.ts`.',
    '',
    'In rings, by each algorithm and with messages that take a random time: `tests/unit/peer/collective-matrix.spec.ts` ([collectives.md](collectives.md)).',
    '',
  ].join('\n')
