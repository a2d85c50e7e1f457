import { isFromScratch } from '../../src/ui/demo/from-scratch.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import type { Line } from './use-samples.tsx'

/** What the network writes with its first parameters, for the built-in story and seed 0, at temperature 0.6. */
export const untrained: Line = {
  id: 0,
  prompt: 'Once there',
  text: 'veAgiSog.llnb,YY HmwARRSR\nYuOA..wA,hNW.Ms\n"lhewid?rdNSSS',
  step: 0,
}

interface SamplesProps {
  lines: readonly Line[]
  /** The model began as the one that wrote `untrained`. */
  beganUntrained: boolean
}

/** Returns whether the model of this run, or of the next, begins with the parameters that wrote `untrained`. */
export function beginsUntrained(props: Pick<ViewProps, 'run' | 'config' | 'isOthers'>): boolean {
  const { data, seed } = props.run?.config ?? props.config ?? {}
  return data === 'story' && seed === 0 && isFromScratch(props)
}

/** Lines as the model wrote them, the newest first, each with the step behind which it was that model; at the end that of the untrained model, where it is known. */
export function Samples({ lines: written, beganUntrained }: SamplesProps) {
  const lines = beganUntrained ? [...written, untrained] : written
  if (lines.length === 0) {
    return <p class="samples quiet">The model starts writing here after its first step.</p>
  }
  return (
    // Scrolled by keys too.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reachable.
    <ol class="samples" aria-label="What the model wrote, the newest first" tabIndex={0}>
      {lines.map(({ id, prompt, text, step }) => (
        <li key={id}>
          <span class="quiet">{step > 0 ? `step ${step}` : 'untrained'}</span>
          <p class="mono">
            <b>{prompt}</b>
            {text}
          </p>
        </li>
      ))}
    </ol>
  )
}
