import { Article, Drawing } from '../../src/ui/demo/article.tsx'
import { Term } from '../../src/ui/parts/term.tsx'
import { simulated } from './simulated.ts'

const devices = 4

interface StepProps {
  readonly microBatches: number
  readonly caption: string
}

/** A step of the page's simulation, by GPipe. */
function Step({ microBatches, caption }: StepProps) {
  const { spans, endMs, bubble } = simulated({ devices, schedule: 'gpipe' }, microBatches)
  const idle = Math.round(100 * bubble)
  return (
    <Drawing
      title={`${devices} devices and ${microBatches} micro-batches: each device waits for ${idle} % of the step.`}
      caption={`${caption} Waiting: ${idle} %.`}
      height={94}
    >
      {spans.map(({ kind, device, startMs, endMs: end, microBatch }) => (
        <rect
          key={`${kind} ${device} ${microBatch}`}
          style={{ fill: `var(--span-${kind})` }}
          x={30 + (320 * startMs) / endMs}
          y={6 + 21 * device}
          width={Math.max(1, (320 * (end - startMs)) / endMs - 0.5)}
          height={17}
        />
      ))}
      {Array.from({ length: devices }, (_, device) => (
        <text key={device} x={14} y={19 + 21 * device}>
          {device}
        </text>
      ))}
    </Drawing>
  )
}

/** What to see where one network is split, and why. */
export const SplitArticle = () => (
  <Article
    title="Four ways to share one network"
    drawings={
      <>
        <Step microBatches={1} caption="The batch in one piece: forward light, backward dark." />
        <Step microBatches={8} caption="The same step in 8 micro-batches." />
      </>
    }
  >
    <p>
      All four panels train the same network on the same points, from the same first numbers, and
      their losses agree. Only who computes what is different.
    </p>
    <p>
      <strong>Data parallel</strong>: every <Term word="device" /> has the whole network and a part
      of the <Term word="batch" />. All work at once, but the network must fit into each, and its{' '}
      <Term word="gradient">gradients</Term> travel.
    </p>
    <p>
      <strong>Model parallel</strong>: each device has some of the <Term word="layer">layers</Term>.
      A network of any size fits if there are enough devices; but while one computes, the others
      wait for it.
    </p>
    <p>
      <strong>Pipeline</strong>: the same, with the batch cut into{' '}
      <Term word="micro-batch">micro-batches</Term>. While the second device has the first piece,
      the first device has the second one. Waiting is left at the beginning and at the end only.
    </p>
    <p>
      <strong>To try.</strong> Make the split size smaller and watch the waiting shrink, until the
      cost of beginning each piece eats the gain. Change GPipe to 1F1B: the step takes about as
      long, but the devices hold fewer pieces at once, so they need less memory. The devices here
      are parts of one GPU, so the last panel computes the step for devices that share nothing.
    </p>
  </Article>
)
