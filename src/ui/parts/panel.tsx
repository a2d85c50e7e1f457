import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

interface PanelProps {
  id: string
  title: string
  /** Beside the title: a unit, a count. */
  aside?: ComponentChildren
  class?: string
  /** Where the window has one column the panel begins shut, with these words in it, and a button opens it. */
  folds?: Fold | undefined
  children: ComponentChildren
}

export interface Fold {
  /** What is inside, in a few words. */
  readonly words: string
  /** Something inside needs a person. */
  readonly mustOpen?: boolean
}

/** One instrument or list with its heading. */
export function Panel({ id, title, aside, class: extra, folds, children }: PanelProps) {
  const [isOpened, setOpened] = useState(false)
  const isOpen = isOpened || folds?.mustOpen === true
  return (
    <section
      class={`panel ${extra ?? ''}`}
      aria-labelledby={`${id}-title`}
      id={id}
      data-folds={folds && (isOpen ? 'open' : 'shut')}
    >
      <header class="panel-head">
        <h2 id={`${id}-title`}>{title}</h2>
        {aside !== undefined && <div class="aside">{aside}</div>}
        {folds && (
          <button
            type="button"
            class="small fold"
            aria-expanded={isOpen}
            aria-controls={`${id}-body`}
            aria-label={`${isOpen ? 'Hide' : 'Show'} ${title}`}
            disabled={folds.mustOpen}
            onClick={() => setOpened(!isOpened)}
          >
            {isOpen ? 'Hide' : 'Show'}
          </button>
        )}
      </header>
      {folds ? (
        <>
          <p class="quiet fold-words">{folds.words}</p>
          <div class="panel-body" id={`${id}-body`}>
            {children}
          </div>
        </>
      ) : (
        children
      )}
    </section>
  )
}
