import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { adapterLine } from '../../util/adapter-words.ts'
import { CodeEntry } from '../members/code-entry.tsx'
import { Invite } from '../members/invite.tsx'
import { PageFoot } from '../parts/page-foot.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import { canStart } from '../state/room-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import type { Trouble } from '../state/trouble.ts'
import { StatusStrip } from '../status/status-strip.tsx'
import type { FirstScreenProps } from './first-screen.tsx'
import { Header } from './header.tsx'
import { keepView, type PageView, type ViewProps } from './page-view.ts'

interface AppProps extends Omit<ViewProps, 'views'>, Partial<Pick<ViewProps, 'views'>> {
  /** Shown until a person chooses the other one. */
  view: PageView
  /** Loads the first screen, where the address names nothing. Default: there is none. */
  loadFirst?: () => Promise<ComponentType<Omit<FirstScreenProps, 'picture' | 'cards'>>>
  /** Loads what is to be read below the demo. Default: there is nothing. */
  loadArticle?: () => Promise<ComponentType<Pick<ViewProps, 'snapshot'>>>
  /** Loads the lesson that the address names. Default: there is none. */
  loadLesson?: (() => Promise<ComponentType<Pick<ViewProps, 'snapshot' | 'acts'>>>) | undefined
}

/** The page as a function of the snapshot. */
export function App({
  snapshot,
  acts,
  views = {},
  view: opened,
  loadFirst,
  loadLesson,
  loadArticle,
}: AppProps) {
  const { stage, run, invite, server, adapter } = snapshot
  const [view, setView] = useState(opened)
  const choose = (chosen: PageView) => {
    setView(chosen)
    keepView(chosen)
  }
  const [isFirst, setFirst] = useState(loadFirst !== undefined)
  const isOver = hasBegun(snapshot)
  const leave = () => {
    setFirst(false)
    // A reload shows what there is now.
    history.replaceState(null, '')
  }
  useEffect(() => {
    if (isFirst && isOver) leave()
  }, [isOver])
  const isFirstShown = isFirst && !isOver
  // What was focused is gone.
  const [hasLeft, setLeft] = useState(false)
  useEffect(() => {
    if (hasLeft) document.querySelector<HTMLElement>('.status h2')?.focus()
  }, [hasLeft])
  const { part: First, failure } = useLoaded(
    'the first screen',
    async () => loadFirst!(),
    isFirstShown,
  )
  const { part: Lesson, failure: noLesson } = useLoaded(
    'the lesson',
    async () => loadLesson!(),
    loadLesson !== undefined,
  )
  const isOnFirst = isFirstShown && !failure
  const hasViews = !isOnFirst && (stage !== 'outside' || run !== null)
  const [hasScrolled, setScrolled] = useState(false)
  useEffect(() => addEventListener('scroll', () => setScrolled(true), { once: true }), [])
  const { part: Article, failure: noArticle } = useLoaded(
    'the article',
    async () => loadArticle!(),
    loadArticle !== undefined && hasViews && (hasScrolled || run !== null),
  )
  return (
    <div class="page" data-stage={stage} data-has-run={run !== null} data-view={view}>
      <Header snapshot={snapshot} acts={acts} view={hasViews ? view : null} onView={choose} />
      <main>
        {isOnFirst ? (
          First && (
            <First
              canStart={canStart(snapshot)}
              onStart={acts.start}
              link={invite}
              device={adapterLine(adapter)}
              invite={<Invite invite={invite} server={server} isAlone />}
              onLeave={() => {
                choose('lab')
                leave()
                setLeft(true)
              }}
            />
          )
        ) : (
          <>
            {Lesson && <Lesson snapshot={snapshot} acts={acts} />}
            {noLesson && <p role="alert">{noLesson}</p>}
            <Room snapshot={snapshot} acts={acts} views={views} view={hasViews ? view : null} />
            {hasViews && Article && <Article snapshot={snapshot} />}
            {noArticle && <p role="alert">{noArticle}</p>}
          </>
        )}
      </main>
      <PageFoot />
    </div>
  )
}

/** Troubles that a tab does not have in the room of a code. */
const roomTroubles: readonly Trouble['kind'][] = ['key', 'refused', 'removed', 'bad-link']

/** Where the tab stands, and below it the view; null for none. */
function Room({ view, ...props }: ViewProps & { view: PageView | null }) {
  const { snapshot, acts } = props
  const { trouble } = snapshot
  const { part: notice, failure: noNotice } = useLoaded(
    'the notice',
    () => import('../status/notice.tsx'),
    trouble !== null,
  )
  const show = useLoaded('the Show', () => import('./show.tsx'), view === 'show')
  const lab = useLoaded('the Lab', () => import('./lab.tsx'), view === 'lab')
  const { part, failure } = view === 'show' ? show : lab
  return (
    <>
      {!trouble && <StatusStrip snapshot={snapshot} acts={acts} isShort={view === 'show'} />}
      {trouble && notice && <notice.Notice trouble={trouble} acts={acts} />}
      {trouble && roomTroubles.includes(trouble.kind) && <CodeEntry />}
      {trouble && noNotice && <p role="alert">{trouble.text}</p>}
      {view === 'show' && show.part && <show.part.Show {...props} />}
      {view === 'lab' && lab.part && <lab.part.Lab {...props} />}
      {view && !part && (failure ? <p role="alert">{failure}</p> : <div class="coming" />)}
    </>
  )
}

/** Something is on, or somebody is here: it is what the page is for now. */
const hasBegun = ({ stage, run, lobby, asks, serverLost, refusal }: Snapshot): boolean =>
  stage === 'outside' ||
  run !== null ||
  serverLost !== null ||
  refusal !== null ||
  asks.length > 0 ||
  (lobby?.members.length ?? 0) > 1
