import { apartQuery } from '../../src/ui/demo/apart-link.tsx'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { type AnyDemo, allDemos } from '../all-demos.ts'

interface Card {
  /** What a class can see in it. */
  readonly teaches: string
  /** Ready experiments besides the demo as it opens: by the words of the link, the query. */
  readonly links?: Readonly<Record<string, string>>
}

const apart = { '3 ranks, no exchange': `?${apartQuery}` }

/** In the order of the page: the demos that rooms train, and those with a separate page. */
const cards: Readonly<Record<AnyDemo, Card>> = {
  digits: {
    teaches: 'How a network reads digits as it learns, and which it still gets wrong.',
    links: { 'with convolutions': '?model=cnn' },
  },
  playground: {
    teaches: 'How a boundary bends, and why ranks that do not exchange gradients disagree.',
    links: apart,
  },
  picture: {
    teaches: 'How each rank adds its part to one picture.',
    links: apart,
  },
  text: {
    teaches: 'How a language model gets from noise to words, and what it attends to.',
  },
  ring: {
    teaches: 'How sums travel around a ring, chunk by chunk, and what latency and loss cost.',
  },
  strategies: {
    teaches: 'Why ranks that share a batch learn the same, and when more of them help.',
  },
  split: {
    teaches: 'How micro-batches keep the stages of a pipeline busy, and what each device holds.',
    links: { 'GPipe on 4 devices': '?devices=4&schedule=gpipe&split=15' },
  },
}

/** What `npm run pictures` has made, by path. */
const pictures = import.meta.glob<string>('../../docs/images/demo-*.webp', {
  eager: true,
  import: 'default',
})

/** A demo's picture, in the colours of the page. */
function Thumbnail({ name }: { name: AnyDemo }) {
  const [light, dark] = ['', '-dark'].map(
    (colours) => pictures[`../../docs/images/demo-${name}${colours}.webp`],
  )
  return (
    <picture>
      <source srcset={dark} media="(prefers-color-scheme: dark)" />
      <img class="thumbnail" src={light} alt="" width={800} height={500} loading="lazy" />
    </picture>
  )
}

interface DemoCardsProps {
  /** As `PageFoot` has it: on the training page links open new tabs. */
  readonly home?: string
}

/** All demos, each with its picture and what is to be seen in it. */
export const DemoCards = ({ home }: DemoCardsProps) => (
  <div class="demo-list">
    {(Object.keys(allDemos) as AnyDemo[]).map((name) => {
      const { title, sentence } = allDemos[name]
      const { teaches, links = {} } = cards[name]
      const address = `${home ?? ''}demos/${name}/`
      const target = home === undefined ? '_blank' : undefined
      return (
        <Panel key={name} id={name} title={title}>
          <Thumbnail name={name} />
          <p>{sentence}</p>
          <p class="quiet">To see: {teaches[0].toLowerCase() + teaches.slice(1)}</p>
          <p class="ready">
            <a href={address} target={target}>
              Open {title}
            </a>
            {Object.entries(links).map(([words, query]) => (
              <a
                key={words}
                href={address + query}
                target={target}
                aria-label={`${title}, ${words}`}
              >
                {words}
              </a>
            ))}
          </p>
        </Panel>
      )
    })}
  </div>
)
