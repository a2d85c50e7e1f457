import { isFromScratch } from '../../src/ui/demo/from-scratch.ts'
import { type Queried, useQuery } from '../../src/ui/demo/use-query.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { duringRun, type Line } from './use-samples.tsx'

/** What the network writes with its first parameters, for the built-in story and seed 0, at temperature 0.6. */
export const untrained: Line = {
  id: 0,
  prompt: 'Once there',
  text: 'veAgiSog.llnb,YY HmwARRSR\nYuOA..wA,hNW.Ms\n"lhewid?rdNSSS',
  step: 0,
}

interface SamplesProps {
  lines: readonly Line[]
  /** Line of the model before its first step. */
  first: Line | null
}

/** Returns whether the model of this run, or of the next, begins with the parameters that wrote `untrained`. */
export function beginsUntrained(props: Pick<ViewProps, 'run' | 'config' | 'isOthers'>): boolean {
  const { data, seed } = props.run?.config ?? props.config ?? {}
  return data === 'story' && seed === 0 && isFromScratch(props)
}

/** Line that the model of this run wrote before its first step, behind the opening of its own text; null until that is known, and where it was trained before. */
export function useFirstLine(props: ViewProps, about: Queried['answer']): Line | null {
  const isKnown = beginsUntrained(props)
  const prompt = String(about?.opening ?? '')
  const input = { prompt, length: duringRun, temperature: 0.6, seed: 0, untrained: true }
  const isIdle = isKnown || about === null || !isFromScratch(props)
  const { answer } = useQuery(props, 'sample', input, { step: 'once', isIdle })
  if (isKnown) return untrained
  return answer && { ...untrained, prompt, text: String(answer.added) }
}

/** Lines as the model wrote them, the newest first, each with the step behind which it was that model; at the end that of the untrained model, where it is known. */
export function Samples({ lines: written, first }: SamplesProps) {
  const lines = first ? [...written, first] : written
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
