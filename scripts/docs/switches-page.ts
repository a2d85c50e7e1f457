import { markdownTable } from '../../src/util/markdown.ts'
import { switches, switchNames } from '../../src/util/switch-table.ts'
import { type SwitchName, variableOf } from '../../src/util/switches.ts'
import { madeBy } from './made-by.ts'
import { switchEffects } from './switch-effects.ts'

function row(name: SwitchName): string[] {
  const { type, default: standard, isOfRun } = switches[name]
  const effect = switchEffects[name]
  const text = isOfRun ? [...effect, 'Set it on every rank.'] : effect
  const shown = typeof standard === 'object' ? 'none' : String(standard)
  return [`\`${name}\``, type, shown, text.join('<br>')]
}

/** docs/reference/switches.md: every switch, and where to set it. */
export const switchesPage = (): string =>
  [
    madeBy('src/util/switch-table.ts'),
    '',
    '# Switches',
    '',
    markdownTable(['switch', 'type', 'default', 'effect'], switchNames.map(row)),
    '',
    'The first of these sources that sets a switch wins; the result is logged once:',
    '',
    '1. code: `setSwitches({ debug: 2 })`',
    "2. the page's address: `?debug=2&variant=matmul:direct-8x8`",
    `3. the launcher's flag, then its environment: \`npm run train -- --debug 2\`, \`${variableOf('debug')}=2\``,
    '4. the default',
    '',
    'Output goes to the console; the launcher writes it to standard error. A switch that is off costs nothing per step. Browsers round timestamps to 100 µs unless WebGPU developer features are on (`chrome://flags/#enable-webgpu-developer-features`); the launcher turns them on when a switch asks for times.',
    '',
  ].join('\n')
