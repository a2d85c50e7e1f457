import type { Line } from './use-samples.tsx'

/** Lines as the model wrote them, the newest first, each with the step behind which it was that model. */
export function Samples({ lines }: { lines: readonly Line[] }) {
  if (lines.length === 0) {
    return <p class="samples quiet">The model starts writing here after its first step.</p>
  }
  return (
    // Scrolled by keys too.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reachable.
    <ol class="samples" aria-label="What the model wrote, the newest first" tabIndex={0}>
      {lines.map(({ id, prompt, text, step }) => (
        <li key={id}>
          <span class="quiet">step {step}</span>
          <p class="mono">
            <b>{prompt}</b>
            {text}
          </p>
        </li>
      ))}
    </ol>
  )
}
