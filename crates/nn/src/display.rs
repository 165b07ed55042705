//! The display of modules. A module without submodules prints its sizes on one line, like Burn's own modules; other
//! modules print as a tree.

/// Implements the display of a module on one line, with these values.
macro_rules! display_line {
    ($module:ident, $self:ident => { $($name:ident: $value:expr),+ $(,)? }) => {
        impl<B: Backend> burn::module::ModuleDisplay for $module<B> {
            fn custom_settings(&self) -> Option<burn::module::DisplaySettings> {
                burn::module::DisplaySettings::new().with_new_line_after_attribute(false).optional()
            }

            fn custom_content(&$self, content: burn::module::Content) -> Option<burn::module::Content> {
                content$(.add_debug_attribute(stringify!($name), &$value))+.optional()
            }
        }
    };
}

/// Implements the display of a module as a tree of its fields, without those that are absent or false.
macro_rules! display_tree {
    ($module:ident) => {
        impl<B: Backend> burn::module::ModuleDisplay for $module<B> {
            fn custom_content(&self, content: burn::module::Content) -> Option<burn::module::Content> {
                // The derived name is in quotes.
                let fields = burn::module::ModuleDisplayDefault::content(self, content)?;
                let mut fields = fields.set_top_level_type(stringify!($module));
                // The modules show the values of their config.
                let is_absent = |value: &str| matches!(value, "None" | "false");
                fields.attributes.retain(|field| !is_absent(&field.value) && field.name != "config");
                Some(fields)
            }
        }
    };
}

/// Displays an enum of modules as the module of its variant.
macro_rules! display_variant {
    ($module:ident { $($variant:ident),+ $(,)? }) => {
        impl<B: Backend> burn::module::ModuleDisplay for $module<B> {
            fn format(&self, settings: burn::module::DisplaySettings) -> String {
                match self {
                    $(Self::$variant(module) => burn::module::ModuleDisplay::format(module, settings),)+
                }
            }
        }
    };
}

pub(crate) use {display_line, display_tree, display_variant};
