/** Pages below the training page's folder. */
const pages = {
  'All demos': 'demos/',
  'The ring, message by message': 'demos/ring/',
  'Strategies side by side': 'demos/strategies/',
  'One network, split': 'demos/split/',
  'Self-test': 'selftest.html',
  Benchmark: 'bench.html',
}

interface PageFootProps {
  /** The training page, from this one; undefined on it: leaving it would leave the room, so links open new tabs. */
  readonly home?: string
}

/** The foot of each page: the other ones. */
export const PageFoot = ({ home }: PageFootProps) => (
  <footer class="foot">
    {home !== undefined && <a href={home}>Train</a>}
    {Object.entries(pages).map(([words, path]) => (
      <a
        key={path}
        href={(home ?? '') + path}
        {...(home === undefined && { target: '_blank', rel: 'noopener' })}
      >
        {words}
      </a>
    ))}
  </footer>
)
