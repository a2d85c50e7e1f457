import { Panel } from '../../src/ui/parts/panel.tsx'
import { meta } from './meta.ts'
import type { StrategyLog } from './strategy-log.ts'
import { verdictsOf } from './verdicts.ts'

const statedSteps = new URLSearchParams(meta.expected.query).get('steps')

/** What must be seen, with a tick where it is. */
export function Result({ logs }: { logs: readonly StrategyLog[] }) {
  const verdicts = verdictsOf(logs)
  return (
    <Panel id="result" title="Result">
      {verdicts.length > 0 ? (
        <ul class="verdicts">
          {verdicts.map(({ words, is }) => (
            <li key={words} data-is={is === undefined ? 'open' : String(is)}>
              <span class="tick" aria-hidden="true">
                {is === undefined ? '○' : is ? '✓' : '✕'}
              </span>
              <span>
                {is !== undefined && (
                  <span class="unseen">{is ? 'holds: ' : 'does not hold: '}</span>
                )}
                {words}
              </span>
            </li>
          ))}
        </ul>
      ) : (
        <p class="quiet">Choose at least two strategies to compare.</p>
      )}
      <p class="quiet">
        A test checks <a href={meta.expected.query}>this run</a> of {statedSteps} steps.
      </p>
    </Panel>
  )
}
