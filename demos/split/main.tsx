import { render } from 'preact'
import '../../src/ui/theme/theme.css'
import '../../src/ui/theme/demo-page.css'
import '../../src/ui/theme/live.css'
import './split.css'
import { SplitPage } from './page.tsx'

render(<SplitPage />, document.getElementById('app')!)
