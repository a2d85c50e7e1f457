import { markdownTable } from '../../src/util/markdown.ts'
import { cellBackends, cells, lengthsText } from '../../tests/support/collective-cells.ts'
import { madeBy } from './made-by.ts'

const ranksText = (sizes: readonly number[]) => `${sizes[0]} to ${sizes[sizes.length - 1]}`

/** docs/backends.md: every function by backend, as the specs run it. */
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
    `Arrays have ${lengthsText}. Reductions go through every \`op\` that the type has. float16 is a \`Uint16Array\` of its bits.`,
    '',
    '- `webrtc`: tabs over data channels, met at a signaling server: `tests/e2e/collective-cells.spec.ts`.',
    '- `broadcast`: tabs of one browser over ports that a SharedWorker hands out, met there: the same file.',
    '- `local`: ranks of one context over message channels: `tests/unit/distributed/collective-cells.spec.ts`.',
    '- `relay`: the same ranks over WebSockets through a signaling server: `tests/unit/distributed/relay-group.spec.ts`.',
    '',
    'In rings, by each algorithm and with messages that take a random time: `tests/unit/peer/collective-matrix.spec.ts` ([collectives.md](collectives.md)).',
    '',
  ].join('\n')
