import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { useLoaded } from '../parts/use-loaded.ts'
import type { Acts } from '../state/acts.ts'
import './first-screen.css'

export interface FirstScreenProps {
  readonly canStart: boolean
  readonly onStart: Acts['start']
  /** The room's address. */
  readonly link: string
  /** What this tab computes on. */
  readonly device: string
  /** How others get in. */
  readonly invite: ComponentChildren
  /** Shows settings and instruments instead. */
  readonly onLeave: () => void
  /** Ranks that train. */
  readonly picture: ComponentChildren
  /** The demos, below it. */
  readonly cards: ComponentChildren
}

/** What a visitor sees who comes with the bare address: training that is under way, and three things to do. */
export function FirstScreen({
  canStart,
  onStart,
  link,
  device,
  invite,
  onLeave,
  picture,
  cards,
}: FirstScreenProps) {
  const [open, setOpen] = useState<'invite' | 'code' | null>(null)
  const toggle = (one: 'invite' | 'code') => setOpen(open === one ? null : one)
  const { part: code } = useLoaded(
    'the short code',
    () => import('../members/short-code.tsx'),
    open === 'code',
  )
  return (
    <div class="first">
      <section class="first-say" aria-label="Begin">
        <h2 class="display">Open tabs. They train one network together.</h2>
        <p>
          Each tab is a rank: its GPU or processor computes a share of every step, and the tabs add
          up their gradients around a ring. There is nothing to install, and no server computes.
        </p>
        <div class="main-acts">
          <button type="button" class="go" disabled={!canStart} onClick={onStart}>
            Train here
          </button>
          <a class="button" href={link} target="_blank" rel="noopener noreferrer">
            Add a tab
          </a>
          <button type="button" aria-expanded={open === 'invite'} onClick={() => toggle('invite')}>
            Invite people
          </button>
          <button type="button" aria-expanded={open === 'code'} onClick={() => toggle('code')}>
            Enter a code
          </button>
        </div>
        {open === 'invite' && invite}
        {open === 'code' && code && <code.EnterCode />}
        <p class="quiet">
          <i>Train here</i> teaches this tab handwritten digits; it takes some seconds.{' '}
          <button type="button" class="plain" onClick={onLeave}>
            Settings and instruments
          </button>
        </p>
        <p class="quiet device">This tab computes on {canStart ? device : 'its device'}</p>
      </section>
      <section class="first-picture" aria-label="Three ranks of this tab, training">
        {/* What a run needs comes first. */}
        {canStart && picture}
      </section>
      <section class="first-ways" aria-label="What there is">
        <h2>What tabs can learn</h2>
        {cards}
        <Ways />
      </section>
    </div>
  )
}

/** For whom it is besides, with the command that each begins with. */
const Ways = () => (
  <dl>
    <div>
      <dt>For a class</dt>
      <dd>
        <code>npm start -- --host</code> serves a room that phones and laptops join by a link or a
        QR code.{' '}
        <a href="class/" target="_blank" rel="noopener">
          Five lessons
        </a>
      </dd>
    </div>
    <div>
      <dt>For your program</dt>
      <dd>
        <code>npx tabring run --nproc-per-node 2 train.ts</code> is torchrun for tabs.{' '}
        <code>npm run train</code> trains the demos without a window.
      </dd>
    </div>
    <div>
      <dt>For your page</dt>
      <dd>
        <code>import {'{ DistributedDataParallel }'} from 'tabring/nn/parallel'</code>: modules,
        optimizers and loaders in PyTorch's words.
      </dd>
    </div>
  </dl>
)
