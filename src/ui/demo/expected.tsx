import { keysWhere, type TrainConfig } from '../../trainer/settings/config.ts'
import {
  type DemoMeta,
  type Expectation,
  learningRateOf,
} from '../../trainer/settings/demo-meta.ts'
import { configOf } from '../../trainer/settings/experiments.ts'
import type { Run } from '../state/run.ts'
import './demo.css'

interface ExpectedProps {
  /** The demo's name. */
  demo: string
  meta: DemoMeta
  run: Run | null
}

/** The results that a demo states, with a tick where this tab's run has reached them. */
export function Expected({ demo, meta, run }: ExpectedProps) {
  return (
    <ul class="expected">
      {meta.expected.map((expectation) => {
        const { is, words } = judge(expectation, demo, meta, run)
        return (
          <li key={JSON.stringify(expectation)} data-is={is}>
            <span aria-hidden="true">{marks[is]}</span> Expected: {inWords(expectation, meta)}.{' '}
            <span class="quiet">{words}</span>
          </li>
        )
      })}
    </ul>
  )
}

const marks = { open: '○', reached: '✓', missed: '✕' } as const

interface Judgement {
  readonly is: keyof typeof marks
  readonly words: string
}

/** What came of an expectation in a run. */
export function judge(
  { config, atLeast, atMost, withinSteps }: Expectation,
  demo: string,
  meta: DemoMeta,
  run: Run | null,
): Judgement {
  if (!run?.config || !isAsExpected(run.config, configOf(demo, meta, config), meta)) {
    const own = settingsInWords(config, meta)
    const words = run
      ? `Not checked: the expected result is for ${own}, with everything else at its default.`
      : `With ${own}; everything else at its default.`
    return { is: 'open', words }
  }
  const { xs, ys, length } = run.accuracy
  for (let i = 0; i < length && xs[i] <= withinSteps; i++) {
    const isReached = atLeast !== undefined ? ys[i] >= atLeast : ys[i] <= Number(atMost)
    if (isReached)
      return { is: 'reached', words: `Reached at step ${xs[i]}: ${valueInWords(ys[i], meta)}.` }
  }
  // A step is reported before the test behind it: until that has come, nothing is missed.
  const testedStep = length > 0 ? xs[length - 1] : 0
  if (testedStep >= withinSteps || (run.end && run.step >= withinSteps))
    return { is: 'missed', words: 'Not reached.' }
  if (run.end) return { is: 'open', words: `The run ended at step ${run.step}.` }
  return { is: 'open', words: `Step ${run.step}.` }
}

function isAsExpected(own: TrainConfig, expected: TrainConfig, meta: DemoMeta): boolean {
  const keys = keysWhere(({ onResume, keepsResult }) => onResume !== 'own' && !keepsResult)
  return (
    !own.resume &&
    learningRateOf(own, meta) === learningRateOf(expected, meta) &&
    keys.every((key) => key === 'lr' || own[key] === expected[key])
  )
}

const inWords = ({ atLeast, atMost, withinSteps }: Expectation, meta: DemoMeta): string =>
  `${meta.metric.name} ${atLeast !== undefined ? '≥' : '≤'} ${valueInWords(atLeast ?? atMost ?? 0, meta)} within ${withinSteps} steps`

const valueInWords = (value: number, { metric }: DemoMeta): string =>
  metric.unit === 'share'
    ? `${Number((100 * value).toFixed(1))} %`
    : `${Number(value.toPrecision(3))} ${metric.unit}`.trim()

/** As the page's settings call them. */
const settingsInWords = (config: Expectation['config'], { data }: DemoMeta): string => {
  const own = Object.entries(config).filter(([key]) => key !== 'epochs' && key !== 'steps')
  return own
    .map(([key, value]) => (key === 'data' ? data[String(value)] : `${key} ${value}`))
    .join(', ')
}
