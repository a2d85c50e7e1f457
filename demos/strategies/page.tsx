import { useEffect, useState } from 'preact/hooks'
import { Later } from '../../src/ui/demo/later.tsx'
import { PageFoot } from '../../src/ui/parts/page-foot.tsx'
import { PageTop } from '../../src/ui/parts/page-top.tsx'
import { idleActs } from '../../src/ui/state/acts.ts'
import { type Trouble, troubleAhead } from '../../src/ui/state/trouble.ts'
import { Notice } from '../../src/ui/status/notice.tsx'
import { messageOf } from '../../src/util/errors.ts'
import { switchParameters, switchValue } from '../../src/util/switches.ts'
import { Controls } from './controls.tsx'
import { Instruments } from './instruments.tsx'
import { meta } from './meta.ts'
import { checkDraft, draftFromQuery, parametersOf } from './settings.ts'
import { Status } from './status.tsx'
import { useRace } from './use-race.ts'
import { About } from './words.tsx'

/** What keeps this page from training, and the switches of its address, which stay there. */
function findAhead(): { trouble: Trouble | null; switches: [string, string][] } {
  try {
    const trouble = troubleAhead({
      isSecureContext: window.isSecureContext,
      hasGpu: Boolean(navigator.gpu) || switchValue('device') !== 'webgpu',
      origin: location.origin,
      port: location.port,
    })
    return { trouble, switches: switchParameters() }
  } catch (thrown) {
    const trouble: Trouble = {
      kind: 'unknown',
      title: 'A setting in this address is not valid',
      text: messageOf(thrown),
      remedies: ['Correct or remove it in the address, then open the page again.'],
      detail: null,
    }
    return { trouble, switches: [] }
  }
}
const ahead = findAhead()
const loadArticle = async () => (await import('./article.tsx')).StrategiesArticle
const acts = { ...idleActs, reenter: () => location.reload() }

/** The page: settings decide strategies, a race trains them, and all else is drawn from their events. */
export function StrategiesPage() {
  const [draft, setDraft] = useState(() => draftFromQuery(location.search))
  const { settings, errors } = checkDraft(draft)
  const race = useRace()
  const isRunning = race.stage === 'running'
  const query = new URLSearchParams([...parametersOf(draft), ...ahead.switches])
  // Commas may stand in a query as they are, and are easier to read.
  const search = query.size > 0 ? `?${query.toString().replaceAll('%2C', ',')}` : ''
  useEffect(() => history.replaceState(null, '', `${location.pathname}${search}`), [search])
  const trouble = ahead.trouble ?? race.trouble
  return (
    <div class="page" data-has-run={race.race !== null}>
      <PageTop home="../../" tagline={meta.title} />
      <main>
        <About />
        {trouble ? (
          <Notice trouble={trouble} acts={acts} />
        ) : (
          <Status race={race} settings={settings} />
        )}
        <div class="desk">
          <div class="side">
            <Controls
              draft={draft}
              errors={errors}
              link={`${location.origin}${location.pathname}${search}`}
              isLocked={isRunning}
              onChange={setDraft}
            />
          </div>
          <Instruments race={race} settings={settings} />
        </div>
        <Later what="the article" load={loadArticle}>
          {(Article) => <Article />}
        </Later>
      </main>
      <PageFoot home="../../" />
    </div>
  )
}
