import type { Line } from './use-samples.tsx'

/** Lines as the model wrote them, the newest first, each with the steps that it was written at. */
export function Samples({ lines }: { lines: readonly Line[] }) {
  if (lines.length === 0) {
    return <p class="quiet">The model writes here as soon as it has learned from a first step.</p>
  }
  return (
    // Scrolled by keys too.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a part that scrolls must be reachable.
    <ol class="samples" aria-label="What the model wrote, the newest first" tabIndex={0}>
      {lines.map(({ id, prompt, text, firstStep, lastStep, isWhole }) => (
        <li key={id} data-open={!isWhole}>
          <span class="quiet">
            {firstStep === lastStep ? `step ${firstStep}` : `steps ${firstStep}–${lastStep}`}
          </span>
          <p class="mono">
            <b>{prompt}</b>
            {text}
            {!isWhole && <span aria-hidden="true">▏</span>}
          </p>
        </li>
      ))}
    </ol>
  )
}
