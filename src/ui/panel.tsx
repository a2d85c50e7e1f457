import type { ComponentChildren } from 'preact'

interface PanelProps {
  id: string
  title: string
  /** Beside the title: a unit, a count. */
  aside?: ComponentChildren
  class?: string
  children: ComponentChildren
}

/** One instrument or list with its heading. */
export function Panel({ id, title, aside, class: extra, children }: PanelProps) {
  return (
    <section class={`panel ${extra ?? ''}`} aria-labelledby={`${id}-title`} id={id}>
      <header class="panel-head">
        <h2 id={`${id}-title`}>{title}</h2>
        {aside !== undefined && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  )
}
