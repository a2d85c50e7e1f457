import { render } from 'preact'
import { experiments } from '../demos/experiments.ts'
import { startWorker } from '../demos/start-worker.ts'
import { views } from '../demos/views.ts'
import 'uplot/dist/uPlot.min.css'
import './ui/theme/theme.css'
import './ui/theme/live.css'
import './ui/theme/lobby.css'
import { plainName } from './peer/room/names.ts'
import { formatFragment, newRoomLink, parseFragment, type RoomLink } from './peer/room/secret.ts'
import { NextDraw } from './ui/demo/use-query.ts'
import { lessonParameter } from './ui/lesson/lesson.ts'
import { App } from './ui/page/app.tsx'
import { keepPageOnDrop } from './ui/page/keep-page-on-drop.ts'
import { firstView, keepView } from './ui/page/page-view.ts'
import { browserName } from './ui/room/browser-name.ts'
import { enterRoom } from './ui/room/enter-room.ts'
import { keepName, readName } from './ui/room/kept-name.ts'
import { ranksOf, transportOf } from './ui/settings/draft.ts'
import { draftFromQuery, givenInQuery } from './ui/settings/query.ts'
import { type Acts, idleActs } from './ui/state/acts.ts'
import { begin } from './ui/state/snapshot.ts'
import { pageSurface, Store } from './ui/state/store.ts'
import { type Trouble, troubleAhead, troubleOf } from './ui/state/trouble.ts'
import { toHex } from './util/env.ts'
import { launcherParameter, switchValue } from './util/switches.ts'

/** The signaling page: every tab that opens it is a rank. */

const root = document.getElementById('app')!

/** A demo's own page is this one with its demo chosen: the address becomes that of this page, so that all that is relative to it holds. */
function leaveDemoAddress(demo: string): void {
  const query = new URLSearchParams(location.search)
  query.set('demo', demo)
  history.replaceState(null, '', new URL(`../../?${query}${location.hash}`, location.href))
}
keepPageOnDrop()
if (root.dataset.demo) leaveDemoAddress(root.dataset.demo)

// Before a new room replaces what is behind the #.
const address = location.search + location.hash
/** Nothing that a person has chosen. */
const isBare = [...new URLSearchParams(location.search).keys()].every(
  (name) => name === launcherParameter,
)
// Stays when the page is loaded again, which then has a room behind the #.
if (isBare && location.hash === '') history.replaceState({ isFirst: true }, '')
const isFirst = isBare && history.state?.isFirst === true

/** The lesson that the page is opened for. */
const lesson = new URLSearchParams(location.search).get(lessonParameter)
const loadLesson = async () => (await import('../demos/lessons/in-training.tsx')).TrainingLesson

const loadArticle = async () => (await import('../demos/articles.tsx')).DemoArticle

/** A reload keeps it, whatever the address has become. */
const view = firstView({
  href: location.href,
  isGuest: location.hash !== '',
  isPlain: isBare || lesson !== null || root.dataset.demo !== undefined,
  isNarrow: matchMedia('(max-width: 640px)').matches,
})
keepView(view)

/** What a visitor sees who comes with nothing but the page's address. */
const loadFirst = async () => (await import('../demos/first-screen/first.tsx')).First

/** The room that the address names, or a new one, which goes into the address. */
function findRoom(): { link: RoomLink | null; trouble: Trouble | null } {
  try {
    // Reads all switches of the address: a wrong one is reported before anything begins.
    const device = switchValue('device')
    const ahead = troubleAhead({
      isSecureContext: window.isSecureContext,
      hasGpu: Boolean(navigator.gpu) || device !== 'webgpu',
      origin: location.origin,
      port: location.port,
    })
    if (ahead) return { link: null, trouble: ahead }
    const link = parseFragment(location.hash) ?? newRoomLink()
    history.replaceState(
      history.state,
      '',
      `${location.pathname}${location.search}${formatFragment(link)}`,
    )
    return { link, trouble: null }
  } catch (thrown) {
    return { link: null, trouble: troubleOf(thrown) }
  }
}

const { link, trouble } = findRoom()
const draft = draftFromQuery(experiments, location.search)
const given = givenInQuery(location.search)
const transport = transportOf(draft)
const shortId = toHex(crypto.getRandomValues(new Uint8Array(2)))
const name = plainName(readName()) || `${browserName(navigator.userAgent)} ${shortId}`
keepName(name)

const nextDraw = () => store.nextDraw()

let acts: Acts = idleActs
const store = new Store(
  begin({
    experiments,
    invite: link ? `${location.origin}${location.pathname}${formatFragment(link)}` : '',
    name,
    draft,
    transport,
    ranks: ranksOf(draft),
    // A room's link that is still there has been used to the last character.
    address: address === location.search + location.hash ? location.search : address,
    lesson,
    givenInLink: given === null ? null : { demo: draft.demo, text: given },
  }),
  pageSurface,
  (snapshot) =>
    render(
      <NextDraw.Provider value={nextDraw}>
        <App
          snapshot={snapshot}
          acts={acts}
          views={views}
          view={view}
          loadArticle={loadArticle}
          loadFirst={isFirst ? loadFirst : undefined}
          loadLesson={lesson === null ? undefined : loadLesson}
        />
      </NextDraw.Provider>,
      root,
    ),
)
document.addEventListener('visibilitychange', () => store.show())
// Another room's link pasted into this tab.
window.addEventListener('hashchange', () => location.reload())
// Brought back by Back: the tab said goodbye to its room when it was left.
window.addEventListener('pageshow', ({ persisted }) => {
  if (persisted) location.reload()
})

if (link) acts = enterRoom(link, store, startWorker)
else if (trouble) store.dispatch({ type: 'outside', trouble })
