import { elsewhere } from './page-top.tsx'

/** Pages below the training page's folder. */
const pages = {
  'The ring, message by message': 'demos/ring/',
  'Strategies side by side': 'demos/strategies/',
  'One network, split': 'demos/split/',
  'Self-test': 'selftest.html',
  Benchmark: 'bench.html',
}

interface PageFootProps {
  /** The training page, from this one; undefined on it. */
  readonly home?: string
}

/** The foot of each page: the other ones. */
export const PageFoot = ({ home }: PageFootProps) => (
  <footer class="foot">
    {home !== undefined && <a href={home}>Train</a>}
    {Object.entries(pages).map(([words, path]) => (
      <a key={path} href={(home ?? '') + path} {...(home === undefined && elsewhere)}>
        {words}
      </a>
    ))}
  </footer>
)
