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
  /** What an untrained model writes of the built-in story says nothing of another text. */
  isOwnText: boolean
}

/** Lines as the model wrote them, the newest first, each with the step behind which it was that model; at the end one of an untrained model. */
export function Samples({ lines: written, isOwnText }: SamplesProps) {
  const lines = isOwnText ? written : [...written, untrained]
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
